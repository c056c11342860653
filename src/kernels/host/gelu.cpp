// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/gelu.hpp"

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

constexpr float root_two_over_pi = 0.7978845608F;
constexpr float cubic = 0.044715F;

/// (1 + tanh(u)) / 2 at u = sqrt(2/pi) (x + 0.044715 x^3): the sigmoid of 2u.
Eight gate(Eight x) { return 1.0F / (1.0F + fast_exp(-2.0F * root_two_over_pi * (x + cubic * x * x * x))); }

}  // namespace

void gelu_tanh(const at::Tensor& x, const at::Tensor& out) {
  expect_shape(out, x.sizes(), x.scalar_type(), "gelu_tanh: out does not fit x");
  if (x.is_cuda()) return cuda::gelu_tanh(x, out);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) {
      in_eights(from.width, [=](std::int64_t i, auto lanes) {
        const Eight v = load(from[n] + i, lanes);
        store(to[n] + i, v * gate(v), lanes);
      });
    });
  });
}

void gelu_tanh_backward(const at::Tensor& d_out, const at::Tensor& x, const at::Tensor& d_x, const at::Tensor& out) {
  for (const at::Tensor* t : {&d_out, &d_x, &out})
    expect_shape(*t, x.sizes(), x.scalar_type(), "gelu_tanh_backward: a tensor does not fit x");
  if (x.is_cuda()) return cuda::gelu_tanh_backward(d_out, x, d_x, out);
  with_type(x, [&]<class T>(T) {
    const auto upstream = rows<T>(d_out);
    const auto from = rows<T>(x);
    const auto d = rows<T>(d_x);
    const auto to = rows<T>(out);
    parallel(from.count, [=](std::int64_t n) {
      in_eights(from.width, [=](std::int64_t i, auto lanes) {
        const Eight v = load(from[n] + i, lanes);
        const Eight s = gate(v);
        const Eight slope = 2.0F * root_two_over_pi * (1.0F + 3.0F * cubic * v * v);
        store(d[n] + i, load(upstream[n] + i, lanes) * (s + v * s * (1.0F - s) * slope), lanes);
        store(to[n] + i, v * s, lanes);
      });
    });
  });
}

}  // namespace trireme::kernels
