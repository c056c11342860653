// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <utility>

#include "trireme/train/engine/job.hpp"

namespace trireme::bench {

/// A step's tokens of this dp rank: random ones, every target counted.
inline data::StepBatch batch(const train::Job& job) {
  std::mt19937 random(static_cast<unsigned>(job.dp_rank().value));
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(job.config().model.vocab_size - 1));
  data::StepBatch out;
  for (int a = 0; a < job.resolved().accumulation; ++a) {
    data::MicrobatchTokens tokens;
    tokens.counted = job.config().batch.micro * job.config().data.seq_len;
    for (std::int64_t i = 0; i < tokens.counted; ++i) {
      tokens.inputs.push_back(token(random));
      tokens.targets.push_back(token(random));
    }
    out.counted += tokens.counted;
    out.microbatches.push_back(std::move(tokens));
  }
  return out;
}

}  // namespace trireme::bench
