// SPDX-License-Identifier: Apache-2.0
// Routers: which experts compute a token, with which weights, and the gradient by the logits.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cuda_experts.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"
#include "trireme/base/ceil_div.hpp"
#include "trireme/kernels/experts.hpp"

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

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// The scores of n logits; returns the log of the partition sum of the logits.
double scores_into(const float* logits, std::int64_t n, model::RouterScores scores, double* s) {
  const double log_z = softmax_into(logits, n, s);
  if (scores == model::RouterScores::sigmoid)
    for (std::int64_t e = 0; e < n; ++e) s[e] = sigmoid_of(logits[e]);
  return log_z;
}

/// Divisor of a token's weights.
double weight_divisor(const double* s, const std::int32_t* chosen, std::int64_t k, bool normalized) {
  if (!normalized) return 1;
  double sum = 0;
  for (std::int64_t j = 0; j < k; ++j) sum += s[chosen[j]];
  return sum;
}

/// The part of a token's gradient through its weights: added to d, the gradient of its logits.
void through_weights(const double* s, const std::int32_t* chosen, const float* d_weights, std::int64_t k,
                     std::int64_t n, const model::Experts& router, double* d) {
  const double sum = weight_divisor(s, chosen, k, router.normalized);
  double mean = 0;
  for (std::int64_t j = 0; j < k; ++j) mean += s[chosen[j]] / sum * d_weights[j];
  const bool softmax = router.scores == model::RouterScores::softmax;
  if (softmax && !router.normalized)
    for (std::int64_t e = 0; e < n; ++e) d[e] -= router.scale * s[e] * mean;
  for (std::int64_t j = 0; j < k; ++j) {
    const double slope = softmax ? 1 : 1 - s[chosen[j]];  // of the logarithm of a score
    d[chosen[j]] +=
        router.scale * slope * s[chosen[j]] / sum * (router.normalized ? d_weights[j] - mean : d_weights[j]);
  }
}

/// Order of preference of experts.
class Preference {
 public:
  Preference(const model::Experts& router, const float* bias)
      : router_(router), bias_(bias), values_(static_cast<std::size_t>(router.count)) {}

  /// Fills the values of one token. NaN sorts last: the step is skipped because of its loss, but the order must be
  /// defined.
  void look_at(const float* logits) {
    const bool by_logit = bias_ == nullptr && router_.groups == 1;  // scores have the same order
    if (!by_logit) (void)scores_into(logits, router_.count, router_.scores, values_.data());
    for (std::size_t e = 0; e < values_.size(); ++e) {
      if (by_logit) values_[e] = logits[e];
      if (bias_ != nullptr) values_[e] += bias_[e];
      if (std::isnan(values_[e])) values_[e] = -std::numeric_limits<double>::infinity();
    }
    if (router_.groups > 1) keep_best_groups();
  }
  [[nodiscard]] bool operator()(std::int32_t a, std::int32_t b) const {
    const bool in_a = kept(a), in_b = kept(b);
    if (in_a != in_b) return in_a;
    const double of_a = values_[static_cast<std::size_t>(a)], of_b = values_[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  }

 private:
  [[nodiscard]] std::size_t group_size() const { return static_cast<std::size_t>(router_.count / router_.groups); }
  [[nodiscard]] bool kept(std::int32_t e) const {
    return kept_.empty() || kept_[static_cast<std::size_t>(e) / group_size()];
  }
  void keep_best_groups() {
    const auto groups = static_cast<std::size_t>(router_.groups);
    std::vector<double> score(groups);
    for (std::size_t g = 0; g < groups; ++g) {
      const auto first = values_.begin() + static_cast<std::ptrdiff_t>(g * group_size());
      std::vector<double> best(2);
      std::partial_sort_copy(first, first + static_cast<std::ptrdiff_t>(group_size()), best.begin(), best.end(),
                             std::greater<>());
      score[g] = best[0] + best[1];
    }
    std::vector<std::size_t> order(groups);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    kept_.assign(groups, false);
    for (std::int64_t g = 0; g < router_.groups_kept; ++g) kept_[order[static_cast<std::size_t>(g)]] = true;
  }

  const model::Experts& router_;
  const float* bias_;
  std::vector<double> values_;
  std::vector<bool> kept_;  ///< by group; empty: all are
};

}  // namespace

at::Tensor choose_experts(const at::Tensor& logits, const model::Experts& router, const at::Tensor& bias) {
  if (logits.is_cuda()) return cuda::choose_experts(logits, router, bias);
  const std::int64_t count = logits.size(1), k = router.per_token;
  at::Tensor experts = at::empty({logits.size(0), k}, logits.options().dtype(at::kInt));
  expect_choice(logits, experts);
  if (bias.defined()) expect_shape(bias, {count}, at::kFloat, "choose_experts: the bias does not fit the logits");
  const auto* const from = logits.const_data_ptr<float>();
  const auto* const biases = bias.defined() ? bias.const_data_ptr<float>() : nullptr;
  auto* const to = experts.mutable_data_ptr<std::int32_t>();
  parallel_chunks(logits.size(0), 64, [=, &router](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(count));
    Preference prefers(router, biases);
    for (std::int64_t token = begin; token < end; ++token) {
      prefers.look_at(from + token * count);
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), std::cref(prefers));
      std::sort(order.begin(), order.begin() + k);
      std::copy_n(order.begin(), k, to + token * k);
    }
  });
  return experts;
}

at::Tensor expert_weights(const at::Tensor& logits, const at::Tensor& experts, const model::Experts& router) {
  expect_choice(logits, experts);
  if (logits.is_cuda()) return cuda::expert_weights(logits, experts, router);
  const std::int64_t count = logits.size(1), k = experts.size(1);
  at::Tensor weights = at::empty(experts.sizes(), logits.options());
  const auto* const from = logits.const_data_ptr<float>();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  auto* const to = weights.mutable_data_ptr<float>();
  parallel_chunks(logits.size(0), 64, [=, &router](std::int64_t begin, std::int64_t end) {
    std::vector<double> s(static_cast<std::size_t>(count));
    for (std::int64_t token = begin; token < end; ++token) {
      (void)scores_into(from + token * count, count, router.scores, s.data());
      const std::int32_t* const of = chosen + token * k;
      const double sum = weight_divisor(s.data(), of, k, router.normalized);
      for (std::int64_t j = 0; j < k; ++j)
        to[token * k + j] = static_cast<float>(router.scale * (s[static_cast<std::size_t>(of[j])] / sum));
    }
  });
  return weights;
}

at::Tensor sequence_loads(const at::Tensor& experts, const Sequences& of, std::int64_t count,
                          std::int64_t all_experts) {
  invariant(of.first >= 0 && of.first + experts.size(0) <= count * of.length, "tokens lie within their sequences");
  if (experts.is_cuda()) return cuda::sequence_loads(experts, of, count, all_experts);
  at::Tensor loads = at::zeros({count, all_experts}, experts.options().dtype(at::kFloat));
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  auto* const to = loads.mutable_data_ptr<float>();
  const std::int64_t k = experts.size(1);
  for (std::int64_t i = 0; i < experts.numel(); ++i)
    to[(of.first + i / k) / of.length * all_experts + chosen[i]] += 1;  // exact below 2^24
  return loads;
}

RouterLosses router_backward(const at::Tensor& d_weights, const at::Tensor& logits, const at::Tensor& experts,
                             const Sequences& sequences, const model::Experts& router, RouterScales scales,
                             const at::Tensor& d_logits) {
  expect_choice(logits, experts);
  expect_shape(d_weights, experts.sizes(), at::kFloat, "router_backward: d_weights do not fit the experts");
  expect_shape(d_logits, logits.sizes(), at::kFloat, "router_backward: d_logits do not fit the logits");
  const std::int64_t count = logits.size(1), k = experts.size(1), tokens = logits.size(0);
  const std::int64_t length = sequences.length, before = sequences.first;
  const std::int64_t first_sequence = before / length, end_sequence = ceil_div(before + tokens, length);
  if (sequences.loads.defined()) {
    expect_shape(sequences.loads, {sequences.loads.size(0), count}, at::kFloat,
                 "router_backward: loads do not fit the experts");
    invariant(sequences.loads.size(0) >= end_sequence, "every sequence has loads");
  }
  if (logits.is_cuda())
    return {.on_device = cuda::router_backward(d_weights, logits, experts, sequences, router, scales, d_logits)};
  const at::Tensor loads =
      sequences.loads.defined() ? sequences.loads : sequence_loads(experts, sequences, end_sequence, count);
  const bool softmax = router.scores == model::RouterScores::softmax;
  const auto* const from = logits.const_data_ptr<float>();
  const auto* const chosen = experts.const_data_ptr<std::int32_t>();
  const auto* const d_weight = d_weights.const_data_ptr<float>();
  const auto* const of_sequences = loads.const_data_ptr<float>();
  auto* const to = d_logits.mutable_data_ptr<float>();
  std::vector<RouterLosses> losses(static_cast<std::size_t>(end_sequence - first_sequence));
  parallel(end_sequence - first_sequence, [=, &losses, &router](std::int64_t number) {
    const auto n = static_cast<std::size_t>(count);
    const std::int64_t sequence = first_sequence + number;
    std::vector<double> p(n), s(n), d(n), load(n, 0);  // p: the softmax; load: f / T
    const float* const choices = of_sequences + sequence * count;
    const double whole = std::accumulate(choices, choices + count, 0.0) / static_cast<double>(k);  // T
    std::transform(choices, choices + count, load.begin(), [&](float of_expert) {
      return of_expert * static_cast<double>(count) / (static_cast<double>(k) * whole * whole);
    });
    RouterLosses& loss = losses[static_cast<std::size_t>(number)];
    const std::int64_t begin = std::max<std::int64_t>(0, sequence * length - before);
    const std::int64_t end = std::min(tokens, (sequence + 1) * length - before);
    for (std::int64_t token = begin; token < end; ++token) {
      const double log_z = softmax_into(from + token * count, count, p.data());
      if (!softmax)
        for (std::size_t e = 0; e < n; ++e) s[e] = sigmoid_of(from[token * count + static_cast<std::int64_t>(e)]);
      const std::vector<double>& scores = softmax ? p : s;
      const double sum = softmax ? 1 : std::accumulate(s.begin(), s.end(), 0.0);
      const double uneven = std::inner_product(scores.begin(), scores.end(), load.begin(), 0.0) / sum;
      loss.balance += scales.balance * uneven;
      loss.z += scales.z * log_z * log_z;
      for (std::size_t e = 0; e < n; ++e) {
        const double balance = scales.balance * (load[e] - uneven);
        d[e] = softmax ? p[e] * (balance + 2 * scales.z * log_z)
                       : s[e] * (1 - s[e]) / sum * balance + p[e] * 2 * scales.z * log_z;
      }
      through_weights(scores.data(), chosen + token * k, d_weight + token * k, k, count, router, d.data());
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

}  // namespace trireme::kernels
