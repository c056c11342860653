// SPDX-License-Identifier: Apache-2.0
//
// In a build without CUDA: no tensor is on a device, so these are never called.
#include "kernels/cuda.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels::cuda {
namespace {

[[noreturn]] void refuse() { throw BugError("a device kernel was called in a build without CUDA"); }

}  // namespace

void rms_norm(const at::Tensor&, const at::Tensor&, double, const at::Tensor&, const at::Tensor&, float) { refuse(); }
void rms_norm_again(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, float) { refuse(); }
void rms_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, const Grad&, float) {
  refuse();
}
bool rms_norm_heads(const at::Tensor&, const HeadNorms&, double, const at::Tensor&, const at::Tensor&, bool) {
  refuse();
}
bool rms_norm_heads_backward(const at::Tensor&, const at::Tensor&, const HeadNorms&, const at::Tensor&,
                             const at::Tensor&, const Grad&, const Grad&) {
  refuse();
}
void layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, const at::Tensor&, const at::Tensor&) {
  refuse();
}
void layer_norm_again(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse();
}
void layer_norm_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, const Grad&, const Grad&) {
  refuse();
}
void rotate(const at::Tensor&, const RopeTable&, std::int64_t, Rotation) { refuse(); }
void swiglu(const at::Tensor&, const at::Tensor&) { refuse(); }
void swiglu_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
void geglu_tanh(const at::Tensor&, const at::Tensor&) { refuse(); }
void geglu_tanh_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
void gelu_tanh(const at::Tensor&, const at::Tensor&) { refuse(); }
void gelu_tanh_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
void add_bias(const at::Tensor&, const at::Tensor&) { refuse(); }
void bias_gradient(const at::Tensor&, const Grad&) { refuse(); }
void embedding_gather(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
void embedding_scatter_add(const at::Tensor&, const at::Tensor&, const Grad&) { refuse(); }
void embedding_gather_part(const at::Tensor&, std::int64_t, const at::Tensor&, const at::Tensor&) { refuse(); }
void embedding_scatter_add_part(const at::Tensor&, std::int64_t, const at::Tensor&, const Grad&) { refuse(); }
void cast(const at::Tensor&, const at::Tensor&) { refuse(); }
void add_into(const at::Tensor&, const at::Tensor&) { refuse(); }
void cross_entropy(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
void cross_entropy_backward(const at::Tensor&, const at::Tensor&, double, double, const at::Tensor&) { refuse(); }
void vocabulary_statistics(const at::Tensor&, const at::Tensor&, std::int64_t, const at::Tensor&) { refuse(); }
void combine_statistics(const at::Tensor&, const at::Tensor&, const at::Tensor&, double, const at::Tensor&) {
  refuse();
}
void cross_entropy_gradient_part(const at::Tensor&, const at::Tensor&, std::int64_t, const at::Tensor&, double,
                                 double) {
  refuse();
}
at::Tensor linear(const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor linear_add(const at::Tensor&, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor linear_backward_input(const at::Tensor&, const at::Tensor&) { refuse(); }
void linear_backward_weight(const at::Tensor&, const at::Tensor&, const Grad&) { refuse(); }
std::shared_ptr<const void> keep_product_workspace(at::Device) { refuse(); }
Fp8Operand fp8_quantize(const at::Tensor&, const Fp8Rounding&) { refuse(); }
at::Tensor fp8_linear(Fp8, const at::Tensor&, const at::Tensor&) { refuse(); }
at::Tensor fp8_backward_input(Fp8, const at::Tensor&, const at::Tensor&) { refuse(); }
void causal_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionShape&, const at::Tensor&,
                      const at::Tensor&, const at::Tensor&) {
  refuse();
}
Attended attend(const at::Tensor&, const at::Tensor&, const at::Tensor&, const AttentionShape&, const at::Tensor&) {
  refuse();
}
void causal_attention_backward(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&, const AttentionShape&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&, const at::Tensor&, const Rotated&) {
  refuse();
}
AttentionLibrary measure_attention(const AttentionShape&) { refuse(); }

}  // namespace trireme::kernels::cuda
