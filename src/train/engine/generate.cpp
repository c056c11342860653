// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/generate.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme::train {

std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t position) {
  if (!std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }))
    throw NumericsError(
        "The model's logits are not finite: its weights diverged or are damaged. Take an earlier export or "
        "checkpoint.");
  if (sampling.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (sampling.top_k > 0 && sampling.top_k < static_cast<std::int64_t>(order.size()))
    order.resize(static_cast<std::size_t>(sampling.top_k));
  std::vector<double> weights;
  const double highest = logits[static_cast<std::size_t>(order.front())];
  for (const std::int32_t id : order)
    weights.push_back(std::exp((logits[static_cast<std::size_t>(id)] - highest) / sampling.temperature));
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < sampling.top_p * all)) kept += weights[count++];
  double left = uniform_at(stream_key(sampling.seed, "generate"), position) * kept;
  for (std::size_t i = 0; i + 1 < count; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[count - 1];
}

at::Tensor TextLogits::after(std::span<const std::int32_t> text) {
  const ForwardRange range = window_.next(static_cast<std::int64_t>(text.size()));
  positions_ += range.count;
  const at::Tensor seen = at::from_blob(const_cast<std::int32_t*>(text.data()) + range.begin,
                                        {1, static_cast<std::int64_t>(text.size()) - range.begin}, at::kInt);
  return (window_.cached() ? job_.infer_cached(seen, range.past) : job_.infer(seen)).flatten();
}

void generate(TextLogits& model, std::vector<std::int32_t> prompt, std::int64_t tokens, std::int32_t end,
              const Sampling& sampling, const std::function<bool(std::int32_t)>& emit) {
  for (std::int64_t i = 0; i < tokens; ++i) {
    const at::Tensor logits = model.after(prompt);
    const std::int32_t next = choose_token({logits.const_data_ptr<float>(), static_cast<std::size_t>(logits.numel())},
                                           sampling, static_cast<std::uint64_t>(i));
    if (next == end) return;
    if (!emit(next)) return;
    prompt.push_back(next);
  }
}

}  // namespace trireme::train
