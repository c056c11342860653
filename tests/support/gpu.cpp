// SPDX-License-Identifier: Apache-2.0
#include "support/gpu.hpp"

#include <ATen/detail/CUDAHooksInterface.h>

namespace trireme::test {

bool kernels_run_here() { return at::detail::getCUDAHooks().deviceCount() > 0; }
bool on_gpu() { return true; }
void make_copies_at_once(bool) {}
at::Tensor to_kernels(const at::Tensor& tensor) { return tensor.contiguous().to(at::kCUDA); }

}  // namespace trireme::test
