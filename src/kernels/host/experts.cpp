// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/experts.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {

ExpertRows expert_rows(const at::Tensor& experts, std::int64_t count) {
  const std::int64_t choices = experts.numel();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  ExpertRows rows{.begin = std::vector<std::int64_t>(static_cast<std::size_t>(count) + 1, 0),
                  .choice = at::empty({choices}, experts.options()),
                  .place = at::empty(experts.sizes(), experts.options())};
  for (std::int64_t i = 0; i < choices; ++i) ++rows.begin[static_cast<std::size_t>(chosen[i]) + 1];
  std::partial_sum(rows.begin.begin(), rows.begin.end(), rows.begin.begin());
  std::vector<std::int64_t> next(rows.begin.begin(), rows.begin.end() - 1);
  auto* const choice = rows.choice.mutable_data_ptr<std::int32_t>();
  auto* const place = rows.place.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < choices; ++i) {
    const std::int64_t row = next[static_cast<std::size_t>(chosen[i])]++;
    choice[row] = static_cast<std::int32_t>(i);
    place[i] = static_cast<std::int32_t>(row);
  }
  return rows;
}

at::Tensor gather_rows(const at::Tensor& x, const ExpertRows& by_expert) {
  const std::int64_t k = by_expert.place.size(1);
  at::Tensor out = at::empty({by_expert.choice.size(0), x.size(1)}, x.options());
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  with_type(x, [&]<class T>(T) {
    const auto from = rows<T>(x), to = rows<T>(out);
    parallel(to.count, [=](std::int64_t row) { std::copy_n(from[choice[row] / k], from.width, to[row]); });
  });
  return out;
}

void sum_rows(const at::Tensor& values, const ExpertRows& by_expert, const at::Tensor& residual,
              const at::Tensor& out) {
  const std::int64_t k = by_expert.place.size(1);
  expect_shape(values, {by_expert.choice.size(0), out.size(1)}, out.scalar_type(), "sum_rows: values do not fit");
  if (residual.defined()) expect_shape(residual, out.sizes(), out.scalar_type(), "sum_rows: the residual does not fit");
  const auto* const place = by_expert.place.const_data_ptr<std::int32_t>();
  with_type(out, [&]<class T>(T) {
    const auto from = rows<T>(values), to = rows<T>(out), beside = residual.defined() ? rows<T>(residual) : to;
    const bool adds = residual.defined();
    parallel_chunks(to.count, 16, [=](std::int64_t begin, std::int64_t end) {
      std::vector<float> sum(static_cast<std::size_t>(to.width));
      for (std::int64_t token = begin; token < end; ++token) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (std::int64_t j = 0; j < k; ++j) {
          const T* const row = from[place[token * k + j]];
          for (std::int64_t c = 0; c < to.width; ++c) sum[static_cast<std::size_t>(c)] += get(row[c]);
        }
        for (std::int64_t c = 0; c < to.width; ++c)
          put(to[token][c], sum[static_cast<std::size_t>(c)] + (adds ? get(beside[token][c]) : 0.0F));
      }
    });
  });
}

void scale_rows(const at::Tensor& values, const at::Tensor& weights, const ExpertRows& by_expert,
                const at::Tensor& out) {
  expect_shape(out, values.sizes(), values.scalar_type(), "scale_rows: out does not fit the values");
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  const auto* const weight = weights.const_data_ptr<float>();
  with_type(values, [&]<class T>(T) {
    const auto from = rows<T>(values), to = rows<T>(out);
    parallel(to.count, [=](std::int64_t row) {
      const float factor = weight[choice[row]];
      for (std::int64_t c = 0; c < to.width; ++c) put(to[row][c], factor * get(from[row][c]));
    });
  });
}

at::Tensor weight_gradients(const at::Tensor& d_scaled, const at::Tensor& values, const ExpertRows& by_expert) {
  expect_shape(d_scaled, values.sizes(), values.scalar_type(), "weight_gradients: d_scaled does not fit the values");
  at::Tensor out = at::empty(by_expert.place.sizes(), values.options().dtype(at::kFloat));
  const auto* const choice = by_expert.choice.const_data_ptr<std::int32_t>();
  auto* const to = out.mutable_data_ptr<float>();
  with_type(values, [&]<class T>(T) {
    const auto a = rows<T>(values), b = rows<T>(d_scaled);
    parallel(a.count, [=](std::int64_t row) {
      double sum = 0;
      for (std::int64_t c = 0; c < a.width; ++c) sum += static_cast<double>(get(a[row][c])) * get(b[row][c]);
      to[choice[row]] = static_cast<float>(sum);
    });
  });
  return out;
}

}  // namespace trireme::kernels
