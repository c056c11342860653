// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/swiglu.hpp"

#include "kernels/parallel.hpp"
#include "kernels/rows.hpp"
#include "trireme/kernels/lanes.hpp"

namespace trireme::kernels {
namespace {

Eight sigmoid(Eight z) { return 1.0F / (1.0F + fast_exp(-z)); }

template <class T>
void forward_row(const T* gate, const T* up, T* out, std::int64_t width) {
  in_eights(width, [=](std::int64_t i, auto lanes) {
    const Eight z = load(gate + i, lanes);
    store(out + i, z * sigmoid(z) * load(up + i, lanes), lanes);
  });
}

template <class T>
void backward_row(const T* d_out, const T* gate, const T* up, T* d_gate, T* d_up, T* out, std::int64_t width) {
  in_eights(width, [=](std::int64_t i, auto lanes) {
    const Eight z = load(gate + i, lanes);
    const Eight u = load(up + i, lanes);
    const Eight g = load(d_out + i, lanes);
    const Eight s = sigmoid(z);
    const Eight silu = z * s;
    store(d_gate + i, g * u * (s + silu * (1.0F - s)), lanes);
    store(d_up + i, g * silu, lanes);
    store(out + i, silu * u, lanes);
  });
}

}  // namespace

void swiglu(const at::Tensor& gate_up, const at::Tensor& out) {
  const std::int64_t width = gate_up.size(1) / 2;
  expect_shape(out, {gate_up.size(0), width}, gate_up.scalar_type(), "swiglu: out does not fit gate_up");
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
