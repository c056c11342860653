// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/experts.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

void expect_choice(const at::Tensor& logits, const at::Tensor& experts) {
  invariant(logits.dim() == 2 && logits.scalar_type() == at::kFloat && logits.is_contiguous(),
            "a router's logits are fp32 [N, E]");
  invariant(experts.dim() == 2 && experts.size(0) == logits.size(0) && experts.size(1) <= logits.size(1) &&
                experts.scalar_type() == at::kInt && experts.is_contiguous(),
            "the experts of tokens are int32 [N, k]");
}

/// The softmax of n logits; returns the log of their partition sum.
double softmax_into(const float* logits, std::int64_t n, double* p) {
  const double largest = *std::max_element(logits, logits + n);
  double sum = 0;
  for (std::int64_t e = 0; e < n; ++e) sum += p[e] = std::exp(logits[e] - largest);
  for (std::int64_t e = 0; e < n; ++e) p[e] /= sum;
  return largest + std::log(sum);
}

/// The part of a token's gradient that goes through its weights: adds to d, the gradient by its logits.
void through_weights(const double* p, const std::int32_t* chosen, const float* d_weights, std::int64_t k,
                     std::int64_t n, bool normalized, double* d) {
  double sum = 1, mean = 0;
  if (normalized) {
    sum = 0;
    for (std::int64_t j = 0; j < k; ++j) sum += p[chosen[j]];
  }
  for (std::int64_t j = 0; j < k; ++j) mean += p[chosen[j]] / sum * d_weights[j];
  if (!normalized)
    for (std::int64_t e = 0; e < n; ++e) d[e] -= p[e] * mean;
  for (std::int64_t j = 0; j < k; ++j)
    d[chosen[j]] += p[chosen[j]] / sum * (normalized ? d_weights[j] - mean : d_weights[j]);
}

}  // namespace

at::Tensor choose_experts(const at::Tensor& logits, std::int64_t k) {
  const std::int64_t count = logits.size(1);
  at::Tensor experts = at::empty({logits.size(0), k}, logits.options().dtype(at::kInt));
  expect_choice(logits, experts);
  const auto* const from = logits.const_data_ptr<float>();
  auto* const to = experts.mutable_data_ptr<std::int32_t>();
  parallel_chunks(logits.size(0), 64, [=](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    for (std::int64_t token = begin; token < end; ++token) {
      const float* const of = from + token * count;
      std::iota(order.begin(), order.end(), 0);
      // NaN last, whatever it is compared with: the step is skipped for its loss, but the order must be one.
      const auto rank = [of](std::int32_t e) { return std::isnan(of[e]) ? -INFINITY : of[e]; };
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int32_t a, std::int32_t b) {
        return rank(a) > rank(b) || (rank(a) == rank(b) && a < b);
      });
      std::sort(order.begin(), order.begin() + k);
      std::copy_n(order.begin(), k, to + token * k);
    }
  });
  return experts;
}

at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& experts, bool normalized) {
  expect_choice(logits, experts);
  const std::int64_t count = logits.size(1), k = experts.size(1);
  at::Tensor weights = at::empty(experts.sizes(), logits.options());
  const auto* const from = logits.const_data_ptr<float>();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  auto* const to = weights.mutable_data_ptr<float>();
  parallel_chunks(logits.size(0), 64, [=](std::int64_t begin, std::int64_t end) {
    std::vector<double> p(static_cast<std::size_t>(count));
    for (std::int64_t token = begin; token < end; ++token) {
      softmax_into(from + token * count, count, p.data());
      double sum = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += p[static_cast<std::size_t>(chosen[token * k + j])];
      for (std::int64_t j = 0; j < k; ++j)
        to[token * k + j] =
            static_cast<float>(p[static_cast<std::size_t>(chosen[token * k + j])] / (normalized ? sum : 1));
    }
  });
  return weights;
}

RouterLosses router_backward(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& experts,
                             std::int64_t seq_len, bool normalized, RouterScales scales, const at::Tensor& d_logits) {
  expect_choice(logits, experts);
  expect_shape(d_weights, experts.sizes(), at::kFloat, "router_backward: d_weights do not fit the experts");
  expect_shape(d_logits, logits.sizes(), at::kFloat, "router_backward: d_logits do not fit the logits");
  const std::int64_t count = logits.size(1), k = experts.size(1), sequences = logits.size(0) / seq_len;
  invariant(sequences * seq_len == logits.size(0), "a router's tokens are whole sequences");
  const auto* const from = logits.const_data_ptr<float>();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  const auto* const d_weight = d_weights.const_data_ptr<float>();
  auto* const to = d_logits.mutable_data_ptr<float>();
  std::vector<RouterLosses> losses(static_cast<std::size_t>(sequences));
  parallel(sequences, [=, &losses](std::int64_t sequence) {
    const auto n = static_cast<std::size_t>(count);
    std::vector<double> p(n), d(n), load(n, 0);  // load: f / T
    for (std::int64_t i = sequence * seq_len * k; i < (sequence + 1) * seq_len * k; ++i)
      load[static_cast<std::size_t>(chosen[i])] +=
          static_cast<double>(count) / static_cast<double>(k * seq_len) / static_cast<double>(seq_len);
    RouterLosses& loss = losses[static_cast<std::size_t>(sequence)];
    for (std::int64_t token = sequence * seq_len; token < (sequence + 1) * seq_len; ++token) {
      const double log_z = softmax_into(from + token * count, count, p.data());
      const double uneven = std::inner_product(p.begin(), p.end(), load.begin(), 0.0);
      loss.balance += scales.balance * uneven;
      loss.z += scales.z * log_z * log_z;
      for (std::size_t e = 0; e < n; ++e) d[e] = p[e] * (scales.balance * (load[e] - uneven) + 2 * scales.z * log_z);
      through_weights(p.data(), chosen + token * k, d_weight + token * k, k, count, normalized, d.data());
      std::transform(d.begin(), d.end(), to + token * count, [](double x) { return static_cast<float>(x); });
    }
  });
  RouterLosses all;
  for (const RouterLosses& one : losses) {
    all.balance += one.balance;
    all.z += one.z;
  }
  return all;
}

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
