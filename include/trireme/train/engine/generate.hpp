// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/train/engine/job.hpp"
#include "trireme/train/engine/text_window.hpp"

namespace trireme::train {

/// Settings for the choice of the next token from its logits.
struct Sampling {
  double temperature = 0;  ///< 0: the most likely one
  std::int64_t top_k = 0;  ///< only the k most likely; 0: all
  double top_p = 1;        ///< only the most likely that together have this probability
  std::uint64_t seed = 1234;
};

/// The token that `sampling` chooses at `position` from `logits` [vocab]; the same on every machine for the same
/// logits. Throws NumericsError when a logit is not finite.
[[nodiscard]] std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling,
                                        std::uint64_t position);

/// Logits after one text that grows, token by token: [vocab], the same on every rank. A job has one at a time.
class TextLogits {
 public:
  /// cached: with a key/value cache; else every forward computes all tokens that it sees. job: outlives this.
  TextLogits(Job& job, bool cached) : job_(job), window_(job.model().sizes, job.config().data.seq_len, cached) {}

  /// text: not empty. Collective over the job.
  [[nodiscard]] at::Tensor after(std::span<const std::int32_t> text);
  /// Positions that were computed so far.
  [[nodiscard]] std::int64_t positions() const { return positions_; }

 private:
  Job& job_;
  TextWindow window_;
  std::int64_t positions_ = 0;
};

/// Continues `prompt` (not empty) by up to `tokens` tokens; stops before `end`. Calls `emit` with every new token; it
/// returns whether to continue, the same on every rank.
void generate(TextLogits& model, std::vector<std::int32_t> prompt, std::int64_t tokens, std::int32_t end,
              const Sampling& sampling, const std::function<bool(std::int32_t)>& emit);

}  // namespace trireme::train
