// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/row_kernels.hpp"

#include "kernels/simd/lanes.hpp"

namespace trireme::kernels {
namespace {

Eight sigmoid(Eight z) { return 1.0F / (1.0F + fast_exp(-z)); }

template <class T>
float maximum_of(const T* row, std::int64_t n) {
  return lane_max(n, [=](std::int64_t i, auto lanes) { return keep(load(row + i, lanes), eight(-INFINITY), lanes); });
}

float exponentials(float* row, std::int64_t n, float scale, float top) {
  return lane_sum(n, [=](std::int64_t i, auto lanes) {
    const Eight e = keep(fast_exp<false>(scale * (load(row + i, lanes) - top)), Eight{}, lanes);
    store(row + i, e, lanes);
    return e;
  });
}

void probabilities(float* p, float* d, const float* lse, const float* delta, float scale, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) {
    const Eight e = fast_exp<false>(scale * load(p + i, lanes) - load(lse + i, lanes));
    store(p + i, e, lanes);
    store(d + i, e * (load(d + i, lanes) - load(delta + i, lanes)) * scale, lanes);
  });
}

void softcap(float* row, std::int64_t n, float scale, float cap) {
  const float inside = scale / cap;
  in_eights(n,
            [=](std::int64_t i, auto lanes) { store(row + i, cap * fast_tanh(inside * load(row + i, lanes)), lanes); });
}

void capped_probabilities(float* p, float* d, const float* lse, const float* delta, float scale, float cap,
                          std::int64_t n) {
  const float inside = scale / cap;
  in_eights(n, [=](std::int64_t i, auto lanes) {
    const Eight t = fast_tanh(inside * load(p + i, lanes));
    const Eight e = fast_exp<false>(cap * t - load(lse + i, lanes));
    store(p + i, e, lanes);
    store(d + i, e * (load(d + i, lanes) - load(delta + i, lanes)) * ((1.0F - t * t) * scale), lanes);
  });
}

template <class T>
Softmax softmax(const T* row, std::int64_t n) {
  const float top = maximum_of(row, n);
  return {.top = top, .sum = lane_sum(n, [=](std::int64_t i, auto lanes) {
                        return keep(fast_exp<false>(load(row + i, lanes) - top), Eight{}, lanes);
                      })};
}

template <class T>
void softmax_gradient(T* row, float top, float factor, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) {
    store(row + i, factor * fast_exp<false>(load(row + i, lanes) - top), lanes);
  });
}

template <class T>
void swiglu(const T* gate, const T* up, T* out, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) {
    const Eight z = load(gate + i, lanes);
    store(out + i, z * sigmoid(z) * load(up + i, lanes), lanes);
  });
}

template <class T>
void swiglu_backward(const T* d_out, const T* gate, const T* up, T* d_gate, T* d_up, T* out, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) {
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

const RowKernels portable_row_kernels{.maximum = maximum_of<float>,
                                      .exponentials = exponentials,
                                      .probabilities = probabilities,
                                      .softcap = softcap,
                                      .capped_probabilities = capped_probabilities,
                                      .softmax_fp32 = softmax<float>,
                                      .softmax_bf16 = softmax<c10::BFloat16>,
                                      .softmax_gradient_bf16 = softmax_gradient<c10::BFloat16>,
                                      .swiglu_fp32 = swiglu<float>,
                                      .swiglu_bf16 = swiglu<c10::BFloat16>,
                                      .swiglu_backward_fp32 = swiglu_backward<float>,
                                      .swiglu_backward_bf16 = swiglu_backward<c10::BFloat16>};

const RowKernels& row_kernels = !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")
                                    ? portable_row_kernels
                                : __builtin_cpu_supports("avx512bf16") ? avx512_bf16_row_kernels
                                                                       : avx512_row_kernels;

}  // namespace trireme::kernels
