// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/layer_norm.hpp"

#include <cmath>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t layer_norm_chunk_rows = 32;

void expect_layer_norm_shapes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& statistics,
                              const at::Tensor& y) {
  expect_shape(weight, {x.size(1)}, x.scalar_type(), "layer_norm: the weight does not fit x");
  expect_shape(statistics, {2, x.size(0)}, at::kFloat, "layer_norm: the statistics do not fit x");
  expect_shape(y, x.sizes(), x.scalar_type(), "layer_norm: y does not fit x");
}

template <class T>
void normalize_row(const T* x, const T* weight, const T* bias, float mean, float rstd, T* y, std::int64_t width) {
  for (std::int64_t d = 0; d < width; ++d) put(y[d], (get(x[d]) - mean) * rstd * get(weight[d]) + get(bias[d]));
}

/// One row of d_x; adds the row's parts of the gradients of weight and bias to d_weight and d_bias [D] fp32.
template <class T, bool with_residual>
void layer_norm_backward_row(const T* d_y, const T* x, const T* weight, float mean, float rstd, const T* d_residual,
                             T* d_x, float* d_weight, float* d_bias, std::int64_t width) {
  const auto n = static_cast<float>(width);
  const float sum_g =
      lane_sum(width, [&](std::int64_t d, auto lanes) { return load(d_y + d, lanes) * load(weight + d, lanes); });
  const float dot = lane_sum(width, [&](std::int64_t d, auto lanes) {
    const Eight normed = keep((load(x + d, lanes) - mean) * rstd, Eight{}, lanes);
    return load(d_y + d, lanes) * load(weight + d, lanes) * normed;
  });
#pragma GCC ivdep
  for (std::int64_t d = 0; d < width; ++d) {
    const float g = get(d_y[d]);
    const float normed = (get(x[d]) - mean) * rstd;
    d_weight[d] += g * normed;
    d_bias[d] += g;
    const float through = rstd * (g * get(weight[d]) - sum_g / n - normed * (dot / n));
    put(d_x[d], with_residual ? get(d_residual[d]) + through : through);
  }
}

/// grad (+)= the sum of `chunks` rows [width] with distance `stride`.
void put_sums(float* sums, std::int64_t chunks, std::int64_t stride, std::int64_t width, const Grad& to) {
  auto* grad = to.tensor.mutable_data_ptr<float>();
  const bool accumulate = to.accumulate;
  parallel_chunks(width, 256, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t d = begin; d < end; ++d) {
      float sum = 0;
      for (std::int64_t c = 0; c < chunks; ++c) sum += sums[c * stride + d];
      grad[d] = accumulate ? grad[d] + sum : sum;
    }
  });
}

}  // namespace

void layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps, const at::Tensor& y,
                const at::Tensor& statistics) {
  expect_layer_norm_shapes(x, weight, statistics, y);
  expect_shape(bias, weight.sizes(), x.scalar_type(), "layer_norm: the bias does not fit x");
  if (x.is_cuda()) return cuda::layer_norm(x, weight, bias, eps, y, statistics);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    const auto to = rows<T>(y);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* b = static_cast<const T*>(bias.const_data_ptr());
    auto* means = statistics.mutable_data_ptr<float>();
    float* rstds = means + from.count;
    const float inverse_width = 1.0F / static_cast<float>(from.width);
    parallel(from.count, [=](std::int64_t n) {
      const T* row = from[n];
      const float mean =
          lane_sum(from.width, [&](std::int64_t d, auto lanes) { return load(row + d, lanes); }) * inverse_width;
      const float squares = lane_sum(from.width, [&](std::int64_t d, auto lanes) {
        const Eight v = keep(load(row + d, lanes) - mean, Eight{}, lanes);
        return v * v;
      });
      means[n] = mean;
      rstds[n] = 1.0F / std::sqrt(squares * inverse_width + static_cast<float>(eps));
      normalize_row(row, w, b, mean, rstds[n], to[n], from.width);
    });
  });
}

void layer_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      const at::Tensor& statistics, const at::Tensor& y) {
  expect_layer_norm_shapes(x, weight, statistics, y);
  if (x.is_cuda()) return cuda::layer_norm_again(x, weight, bias, statistics, y);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    const auto to = rows<T>(y);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* b = static_cast<const T*>(bias.const_data_ptr());
    const auto* means = statistics.const_data_ptr<float>();
    const float* rstds = means + from.count;
    parallel(from.count, [=](std::int64_t n) { normalize_row(from[n], w, b, means[n], rstds[n], to[n], from.width); });
  });
}

void layer_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& statistics, const at::Tensor& d_residual, const at::Tensor& d_x,
                         const Grad& d_weight, const Grad& d_bias) {
  expect_layer_norm_shapes(x, weight, statistics, d_y);
  expect_shape(d_x, x.sizes(), x.scalar_type(), "layer_norm_backward: d_x does not fit x");
  for (const Grad* grad : {&d_weight, &d_bias})
    expect_shape(grad->tensor, weight.sizes(), at::kFloat,
                 "layer_norm_backward: a gradient does not fit its parameter");
  if (d_residual.defined())
    expect_shape(d_residual, x.sizes(), x.scalar_type(), "layer_norm_backward: d_residual does not fit x");
  if (x.is_cuda()) return cuda::layer_norm_backward(d_y, x, weight, statistics, d_residual, d_x, d_weight, d_bias);
  with_type(x, [&]<class T>(T) {
    const auto upstream = rows<T>(d_y);
    const auto from = rows<T>(x);
    const auto residual = rows<T>(d_residual.defined() ? d_residual : d_x);
    const auto to = rows<T>(d_x);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* means = statistics.const_data_ptr<float>();
    const float* rstds = means + from.count;
    const std::int64_t width = from.width;
    const std::int64_t chunks = ceil_div(from.count, layer_norm_chunk_rows);
    std::vector<float> partial(static_cast<std::size_t>(chunks * 2 * width), 0.0F);
    float* sums = partial.data();
    const auto row = d_residual.defined() ? layer_norm_backward_row<T, true> : layer_norm_backward_row<T, false>;
    parallel_chunks(from.count, layer_norm_chunk_rows, [=](std::int64_t begin, std::int64_t end) {
      float* weights = sums + begin / layer_norm_chunk_rows * 2 * width;
      for (std::int64_t n = begin; n < end; ++n)
        row(upstream[n], from[n], w, means[n], rstds[n], residual[n], to[n], weights, weights + width, width);
    });
    put_sums(sums, chunks, 2 * width, width, d_weight);
    put_sums(sums + width, chunks, 2 * width, width, d_bias);
  });
}

}  // namespace trireme::kernels
