// SPDX-License-Identifier: Apache-2.0
//
// Tests for GPUs run on the simulated one, except for properties that only a real one has.
#include "support/gpu.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::test {

bool kernels_run_here() { return true; }
bool on_gpu() { return false; }
void make_copies_at_once(bool) {}
at::Tensor to_kernels(const at::Tensor& tensor) { return tensor.contiguous().to(at::kCUDA); }

}  // namespace trireme::test

namespace trireme::kernels {

/// Without measurements: the library of the emulated kernels' tests.
[[maybe_unused]] const bool dense_is_chosen = (set_attention_library(AttentionLibrary::dense), true);

}  // namespace trireme::kernels
