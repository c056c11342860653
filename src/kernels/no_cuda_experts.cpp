// SPDX-License-Identifier: Apache-2.0
//
// In a build without CUDA: no tensor is on a device, so these are never called.
#include "kernels/cuda_experts.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels::cuda {
namespace {

[[noreturn]] void refuse() { throw BugError("a device kernel of experts was called in a build without CUDA"); }

}  // namespace

at::Tensor choose_experts(const at::Tensor&, const model::Experts&, const at::Tensor&) { refuse(); }
at::Tensor expert_weights(const at::Tensor&, const at::Tensor&, const model::Experts&) { refuse(); }
at::Tensor sequence_loads(const at::Tensor&, const Sequences&, std::int64_t, std::int64_t) { refuse(); }
at::Tensor router_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Sequences&,
                           const model::Experts&, RouterScales, const at::Tensor&) {
  refuse();
}
ExpertRows expert_rows(const at::Tensor&, std::int64_t) { refuse(); }
void gather_rows(const at::Tensor&, const ExpertRows&, const at::Tensor&) { refuse(); }
void sum_rows(const at::Tensor&, const ExpertRows&, const at::Tensor&, const at::Tensor&) { refuse(); }
void scale_rows(const at::Tensor&, const at::Tensor&, const ExpertRows&, const at::Tensor&) { refuse(); }
void weight_gradients(const at::Tensor&, const at::Tensor&, const ExpertRows&, const at::Tensor&) { refuse(); }
void move_segments(const at::Tensor&, std::span<const std::int64_t>, std::span<const std::int64_t>, const at::Tensor&) {
  refuse();
}
bool multiplies_in_groups() { refuse(); }
at::Tensor grouped_product(const at::Tensor&, const at::Tensor&, std::span<const std::int64_t>) { refuse(); }

}  // namespace trireme::kernels::cuda
