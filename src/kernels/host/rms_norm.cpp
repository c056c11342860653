// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/rms_norm.hpp"

#include <cmath>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

constexpr std::int64_t rms_norm_chunk_rows = 32;

void expect_rms_norm_shapes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                            const at::Tensor& y) {
  expect_shape(weight, {x.size(1)}, x.scalar_type(), "rms_norm: the weight does not fit x");
  expect_shape(rstd, {x.size(0)}, at::kFloat, "rms_norm: rstd does not fit x");
  expect_shape(y, x.sizes(), x.scalar_type(), "rms_norm: y does not fit x");
}

template <class T>
void scale_row(const T* x, const T* weight, float offset, float rstd, T* y, std::int64_t width) {
  in_eights(width, [=](std::int64_t d, auto lanes) {
    store(y + d, load(x + d, lanes) * rstd * (offset + load(weight + d, lanes)), lanes);
  });
}

/// One row of d_x; adds the row's part of the weight's gradient to d_weight [D] fp32.
template <class T, bool with_residual>
void rms_norm_backward_row(const T* d_y, const T* x, const T* weight, float offset, float rstd, const T* d_residual,
                           T* d_x, float* d_weight, std::int64_t width) {
  const float dot = lane_sum(width, [&](std::int64_t d, auto lanes) {
    return load(d_y + d, lanes) * (offset + load(weight + d, lanes)) * load(x + d, lanes);
  });
  const float mean = dot * rstd * rstd / static_cast<float>(width);
  in_eights(width, [=](std::int64_t d, auto lanes) {
    const Eight g = load(d_y + d, lanes);
    const Eight value = load(x + d, lanes);
    store(d_weight + d, load(d_weight + d, lanes) + g * value * rstd, lanes);
    const Eight through = rstd * (g * (offset + load(weight + d, lanes)) - value * mean);
    if constexpr (with_residual) {
      store(d_x + d, load(d_residual + d, lanes) + through, lanes);
    } else {
      store(d_x + d, through, lanes);
    }
  });
}

}  // namespace

void rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
              float offset) {
  expect_rms_norm_shapes(x, weight, rstd, y);
  if (x.is_cuda()) return cuda::rms_norm(x, weight, eps, y, rstd, offset);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    const auto to = rows<T>(y);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    auto* r = rstd.mutable_data_ptr<float>();
    const float inverse_width = 1.0F / static_cast<float>(from.width);
    parallel(from.count, [=](std::int64_t n) {
      const T* row = from[n];
      const float sum = lane_sum(from.width, [&](std::int64_t d, auto lanes) {
        const Eight v = load(row + d, lanes);
        return v * v;
      });
      r[n] = 1.0F / std::sqrt(sum * inverse_width + static_cast<float>(eps));
      scale_row(row, w, offset, r[n], to[n], from.width);
    });
  });
}

void rms_norm_again(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd, const at::Tensor& y,
                    float offset) {
  expect_rms_norm_shapes(x, weight, rstd, y);
  if (x.is_cuda()) return cuda::rms_norm_again(x, weight, rstd, y, offset);
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x);
    const auto to = rows<T>(y);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* r = rstd.const_data_ptr<float>();
    parallel(from.count, [=](std::int64_t n) { scale_row(from[n], w, offset, r[n], to[n], from.width); });
  });
}

void rms_norm_backward(const at::Tensor& d_y, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& d_residual, const at::Tensor& d_x, const Grad& d_weight, float offset) {
  expect_rms_norm_shapes(x, weight, rstd, d_y);
  expect_shape(d_x, x.sizes(), x.scalar_type(), "rms_norm_backward: d_x does not fit x");
  expect_shape(d_weight.tensor, weight.sizes(), at::kFloat, "rms_norm_backward: the gradient does not fit the weight");
  if (d_residual.defined())
    expect_shape(d_residual, x.sizes(), x.scalar_type(), "rms_norm_backward: d_residual does not fit x");
  if (x.is_cuda()) return cuda::rms_norm_backward(d_y, x, weight, rstd, d_residual, d_x, d_weight, offset);
  with_type(x, [&]<class T>(T) {
    const auto upstream = rows<T>(d_y);
    const auto from = rows<T>(x);
    const auto residual = rows<T>(d_residual.defined() ? d_residual : d_x);
    const auto to = rows<T>(d_x);
    const auto* w = static_cast<const T*>(weight.const_data_ptr());
    const auto* r = rstd.const_data_ptr<float>();
    const std::int64_t width = from.width;
    const std::int64_t chunks = ceil_div(from.count, rms_norm_chunk_rows);
    std::vector<float> partial(static_cast<std::size_t>(chunks * width), 0.0F);
    float* sums = partial.data();
    const auto row = d_residual.defined() ? rms_norm_backward_row<T, true> : rms_norm_backward_row<T, false>;
    parallel_chunks(from.count, rms_norm_chunk_rows, [=](std::int64_t begin, std::int64_t end) {
      float* sum = sums + begin / rms_norm_chunk_rows * width;
      for (std::int64_t n = begin; n < end; ++n)
        row(upstream[n], from[n], w, offset, r[n], residual[n], to[n], sum, width);
    });
    auto* grad = d_weight.tensor.mutable_data_ptr<float>();
    const bool accumulate = d_weight.accumulate;
    parallel_chunks(width, 256, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = 1; c < chunks; ++c) {
        for (std::int64_t d = begin; d < end; ++d) sums[d] += sums[c * width + d];
      }
      for (std::int64_t d = begin; d < end; ++d)
        grad[d] = chunks == 0 ? (accumulate ? grad[d] : 0.0F) : (accumulate ? grad[d] + sums[d] : sums[d]);
    });
  });
}

namespace {

/// Calls body(columns of x of a head, its statistics, whether it is of a query).
template <class Body>
void for_each_head(const at::Tensor& rstd, const HeadNorms& norms, const Body& body) {
  for (std::int64_t head = 0; head < rstd.size(0); ++head) {
    const auto columns = [&](const at::Tensor& t) {
      return t.slice(1, head * norms.head_dim, (head + 1) * norms.head_dim);
    };
    body(columns, rstd.select(0, head), head);
  }
}

}  // namespace

void rms_norm_heads(const at::Tensor& x, const HeadNorms& norms, double eps, const at::Tensor& y,
                    const at::Tensor& rstd, bool again) {
  invariant(x.size(1) == rstd.size(0) * norms.head_dim && x.size(0) == rstd.size(1) && x.sizes() == y.sizes(),
            "rms_norm_heads: the heads do not fit the rows");
  if (x.is_cuda() && cuda::rms_norm_heads(x, norms, eps, y, rstd, again)) return;
  for_each_head(rstd, norms, [&](const auto& columns, const at::Tensor& statistics, std::int64_t head) {
    const at::Tensor& weight = head < norms.q_heads ? norms.q_weight : norms.k_weight;
    if (again)
      rms_norm_again(columns(x), weight, statistics, columns(y), norms.offset);
    else
      rms_norm(columns(x), weight, eps, columns(y), statistics, norms.offset);
  });
}

void rms_norm_heads_backward(const at::Tensor& d_y, const at::Tensor& x, const HeadNorms& norms, const at::Tensor& rstd,
                             const at::Tensor& d_x, const Grad& d_q_weight, const Grad& d_k_weight) {
  invariant(x.size(1) == rstd.size(0) * norms.head_dim && x.size(0) == rstd.size(1) && x.sizes() == d_y.sizes(),
            "rms_norm_heads_backward: the heads do not fit the rows");
  if (x.is_cuda() && cuda::rms_norm_heads_backward(d_y, x, norms, rstd, d_x, d_q_weight, d_k_weight)) return;
  for_each_head(rstd, norms, [&](const auto& columns, const at::Tensor& statistics, std::int64_t head) {
    const bool query = head < norms.q_heads;
    Grad grad = query ? d_q_weight : d_k_weight;
    grad.accumulate = grad.accumulate || (head != 0 && head != norms.q_heads);
    rms_norm_backward(columns(d_y), columns(x), query ? norms.q_weight : norms.k_weight, statistics, {}, columns(d_x),
                      grad, norms.offset);
  });
}

}  // namespace trireme::kernels
