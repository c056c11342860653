// SPDX-License-Identifier: Apache-2.0
//
// What tests for GPUs ask, of the simulated one; and what only a real one has.
#include "support/gpu.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::test {

bool kernels_run_here() { return true; }
bool on_gpu() { return false; }
void make_copies_at_once(bool) {}
at::Tensor to_kernels(const at::Tensor& tensor) { return tensor.contiguous().to(at::kCUDA); }

}  // namespace trireme::test

namespace trireme::kernels {

/// Where nothing is measured, what the emulated kernels' tests have.
[[maybe_unused]] const bool dense_is_chosen = (set_attention_library(AttentionLibrary::dense), true);

}  // namespace trireme::kernels
