// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/swiglu.hpp"

#include "kernels/cuda.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/row_kernels.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

void forward_row(const float* gate, const float* up, float* out, std::int64_t n) {
  row_kernels.swiglu_fp32(gate, up, out, n);
}
void forward_row(const c10::BFloat16* gate, const c10::BFloat16* up, c10::BFloat16* out, std::int64_t n) {
  row_kernels.swiglu_bf16(gate, up, out, n);
}
void backward_row(const float* d_out, const float* gate, const float* up, float* d_gate, float* d_up, float* out,
                  std::int64_t n) {
  row_kernels.swiglu_backward_fp32(d_out, gate, up, d_gate, d_up, out, n);
}
void backward_row(const c10::BFloat16* d_out, const c10::BFloat16* gate, const c10::BFloat16* up, c10::BFloat16* d_gate,
                  c10::BFloat16* d_up, c10::BFloat16* out, std::int64_t n) {
  row_kernels.swiglu_backward_bf16(d_out, gate, up, d_gate, d_up, out, n);
}

}  // namespace

void swiglu(const at::Tensor& gate_up, const at::Tensor& out) {
  const std::int64_t width = gate_up.size(1) / 2;
  expect_shape(out, {gate_up.size(0), width}, gate_up.scalar_type(), "swiglu: out does not fit gate_up");
  if (gate_up.is_cuda()) return cuda::swiglu(gate_up, out);
  with_type(gate_up, [&]<class T>(T) {
    const auto from = rows<T>(gate_up);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) { forward_row(from[n], from[n] + width, to[n], width); });
  });
}

void swiglu_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                     const at::Tensor& out) {
  const std::int64_t width = gate_up.size(1) / 2;
  expect_shape(d_out, {gate_up.size(0), width}, gate_up.scalar_type(), "swiglu_backward: d_out does not fit gate_up");
  expect_shape(out, d_out.sizes(), gate_up.scalar_type(), "swiglu_backward: out does not fit gate_up");
  expect_shape(d_gate_up, gate_up.sizes(), gate_up.scalar_type(), "swiglu_backward: d_gate_up does not fit gate_up");
  if (gate_up.is_cuda()) return cuda::swiglu_backward(d_out, gate_up, d_gate_up, out);
  with_type(gate_up, [&]<class T>(T) {
    const auto from = rows<T>(gate_up);
    const auto upstream = rows<T>(d_out);
    const auto d = rows<T>(d_gate_up);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) {
      backward_row(upstream[n], from[n], from[n] + width, d[n], d[n] + width, to[n], width);
    });
  });
}

}  // namespace trireme::kernels
