// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/geglu.hpp"

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

constexpr float twice_root_two_over_pi = 2 * 0.7978845608F;
constexpr float cubic_term = 0.044715F;

/// (1 + tanh(u)) / 2 at u = sqrt(2/pi) (z + 0.044715 z^3): the sigmoid of 2u.
Eight gelu_gate(Eight z) { return 1.0F / (1.0F + fast_exp(-twice_root_two_over_pi * (z + cubic_term * z * z * z))); }

}  // namespace

void geglu_tanh(const at::Tensor& gate_up, const at::Tensor& out) {
  const std::int64_t width = gate_up.size(1) / 2;
  expect_shape(out, {gate_up.size(0), width}, gate_up.scalar_type(), "geglu_tanh: out does not fit gate_up");
  if (gate_up.is_cuda()) return cuda::geglu_tanh(gate_up, out);
  with_type(gate_up, [&]<class T>(T) {
    const auto from = rows<T>(gate_up);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) {
      in_eights(width, [=](std::int64_t i, auto lanes) {
        const Eight z = load(from[n] + i, lanes);
        store(to[n] + i, z * gelu_gate(z) * load(from[n] + width + i, lanes), lanes);
      });
    });
  });
}

void geglu_tanh_backward(const at::Tensor& d_out, const at::Tensor& gate_up, const at::Tensor& d_gate_up,
                         const at::Tensor& out) {
  const std::int64_t width = gate_up.size(1) / 2;
  for (const at::Tensor* t : {&d_out, &out})
    expect_shape(*t, {gate_up.size(0), width}, gate_up.scalar_type(), "geglu_tanh_backward: a tensor does not fit");
  expect_shape(d_gate_up, gate_up.sizes(), gate_up.scalar_type(), "geglu_tanh_backward: d_gate_up does not fit");
  if (gate_up.is_cuda()) return cuda::geglu_tanh_backward(d_out, gate_up, d_gate_up, out);
  with_type(gate_up, [&]<class T>(T) {
    const auto from = rows<T>(gate_up);
    const auto upstream = rows<T>(d_out);
    const auto d = rows<T>(d_gate_up);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) {
      in_eights(width, [=](std::int64_t i, auto lanes) {
        const Eight z = load(from[n] + i, lanes), u = load(from[n] + width + i, lanes);
        const Eight g = load(upstream[n] + i, lanes), s = gelu_gate(z), gelu = z * s;
        const Eight slope = s + gelu * (1.0F - s) * (twice_root_two_over_pi * (1.0F + 3.0F * cubic_term * z * z));
        store(d[n] + i, g * u * slope, lanes);
        store(d[n] + width + i, g * gelu, lanes);
        store(to[n] + i, gelu * u, lanes);
      });
    });
  });
}

}  // namespace trireme::kernels
