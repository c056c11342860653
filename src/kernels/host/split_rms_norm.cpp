// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/split_rms_norm.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include <vector>

#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t split_rms_norm_chunk_rows = 32;

/// On a device by libtorch's operators.
void split_rms_norm_backward_by_operators(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                                          const at::Tensor& rstd, double width, const at::Tensor& d_x,
                                          const at::Tensor& sums, const Grad& d_weight, float offset) {
  const at::Tensor upstream = d_y.to(at::kFloat), r = rstd.unsqueeze(1);
  const at::Tensor normed = x.to(at::kFloat) * r;  // not in place: fp32 x is itself
  const at::Tensor of_weight = at::sum(upstream * normed, 0);
  const at::Tensor first = upstream * (weight.to(at::kFloat) + offset) * r;
  sums.copy_(at::sum(first * normed, 1).mul_(rstd).div_(width));
  d_x.copy_(first);
  if (d_weight.accumulate)
    d_weight.tensor.add_(of_weight);
  else
    d_weight.tensor.copy_(of_weight);
}

}  // namespace

void row_squares(const at::Tensor& x, const at::Tensor& sums) {
  expect_shape(sums, {x.size(0)}, at::kFloat, "row_squares: the sums do not fit x");
  if (!x.is_cpu()) {
    const at::Tensor wide = x.to(at::kFloat);
    sums.copy_(at::sum(wide * wide, 1));
    return;
  }
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    auto* out = sums.mutable_data_ptr<float>();
    parallel(from.count, [=](std::int64_t n) {
      const T* row = from[n];
      out[n] = lane_sum(from.width, [&](std::int64_t d, auto lanes) {
        const Eight v = load(row + d, lanes);
        return v * v;
      });
    });
  });
}

void split_rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& rstd, double width, const at::Tensor& d_x, const at::Tensor& sums,
                             const Grad& d_weight, float offset) {
  expect_shape(d_y, x.sizes(), x.scalar_type(), "split_rms_norm_backward: d_y does not fit x");
  expect_shape(d_x, x.sizes(), x.scalar_type(), "split_rms_norm_backward: d_x does not fit x");
  expect_shape(rstd, {x.size(0)}, at::kFloat, "split_rms_norm_backward: rstd does not fit x");
  expect_shape(sums, {x.size(0)}, at::kFloat, "split_rms_norm_backward: the sums do not fit x");
  expect_shape(weight, {x.size(1)}, x.scalar_type(), "split_rms_norm_backward: the weight does not fit x");
  expect_shape(d_weight.tensor, {x.size(1)}, at::kFloat, "split_rms_norm_backward: the gradient does not fit x");
  if (!x.is_cpu())
    return split_rms_norm_backward_by_operators(d_y, x, weight, rstd, width, d_x, sums, d_weight, offset);
  with_type(x, [&]<class T>(T) {
    const auto upstream = rows<T>(d_y), from = rows<T>(x), to = rows<T>(d_x);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* r = rstd.const_data_ptr<float>();
    auto* out = sums.mutable_data_ptr<float>();
    const std::int64_t columns = from.width;
    const auto inverse = static_cast<float>(1 / width);
    const std::int64_t chunks = ceil_div(from.count, split_rms_norm_chunk_rows);
    std::vector<float> partial(static_cast<std::size_t>(chunks * columns), 0.0F);
    float* of_weight = partial.data();
    parallel_chunks(from.count, split_rms_norm_chunk_rows, [=](std::int64_t begin, std::int64_t end) {
      float* sum = of_weight + begin / split_rms_norm_chunk_rows * columns;
      for (std::int64_t n = begin; n < end; ++n) {
        const T *d = upstream[n], *row = from[n];
        const float scale = r[n];
        out[n] = scale * scale * scale * inverse * lane_sum(columns, [&](std::int64_t c, auto lanes) {
                   return load(d + c, lanes) * (offset + load(w + c, lanes)) * load(row + c, lanes);
                 });
        T* first = to[n];
        in_eights(columns, [=](std::int64_t c, auto lanes) {
          const Eight g = load(d + c, lanes);
          store(sum + c, load(sum + c, lanes) + g * load(row + c, lanes) * scale, lanes);
          store(first + c, scale * (offset + load(w + c, lanes)) * g, lanes);
        });
      }
    });
    auto* grad = d_weight.tensor.mutable_data_ptr<float>();
    const bool accumulate = d_weight.accumulate;
    parallel_chunks(columns, 256, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        float all = 0;
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) all += of_weight[chunk * columns + c];
        grad[c] = accumulate ? grad[c] + all : all;
      }
    });
  });
}

void subtract_scaled_rows(const at::Tensor& x, const at::Tensor& sums, const at::Tensor& d_x) {
  if (!x.is_cpu()) {
    d_x.sub_(x.to(at::kFloat) * sums.unsqueeze(1));
    return;
  }
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x), to = rows<T>(d_x);
    const auto* factors = sums.const_data_ptr<float>();
    for (std::int64_t n = 0; n < from.count; ++n) {
      const T* row = from[n];
      T* out = to[n];
      for (std::int64_t c = 0; c < from.width; ++c) put(out[c], get(out[c]) - factors[n] * get(row[c]));
    }
  });
}

}  // namespace trireme::kernels
