// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/train/engine/job.hpp"

namespace trireme::train {

/// How the next token is chosen from its logits.
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

/// Continues `prompt` (not empty) by up to `tokens` tokens; stops before `end`. Each forward sees the last seq_len
/// tokens. Calls `emit` with every token as it comes, which returns whether to go on, the same on every rank. job:
/// built with trains = false.
void generate(Job& job, std::vector<std::int32_t> prompt, std::int64_t tokens, std::int32_t end,
              const Sampling& sampling, const std::function<bool(std::int32_t)>& emit);

}  // namespace trireme::train
