// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>

#include "trireme/config/load.hpp"

namespace trireme::planner::testing {

/// A run of a random small model. In some of them the peak of a few layers is another op than that of all.
inline config::RunConfig run_whose_peak_may_move(std::mt19937& random) {
  const auto among = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  config::RunConfig config = config::parse_run_file(R"(
[model]
vocab_size = 1000
hidden_size = 128
intermediate_size = 1
layers = 20
heads = 2
head_dim = 8
[data]
train = "tokens.bin"
seq_len = 100
[batch]
global = 64
micro = 1
[train]
steps = 1
[device]
type = "cuda"
)",
                                                    "small");
  config.model.vocab_size = among(10, 30) * 1000;
  config.model.hidden_size = 16 * among(1, 24);
  config.model.intermediate_size = among(1, 300);
  config.model.layers = among(14, 60);
  config.model.heads = config.model.kv_heads = 2;
  config.model.head_dim = 8 * among(1, 4);
  config.data.seq_len = among(20, 300);
  config.batch = {.global = 64, .micro = std::int64_t{1} << among(0, 2)};
  config.memory.recompute = among(0, 1) == 0 ? config::Recompute::block : config::Recompute::selective;
  config.sync.policy = among(0, 1) == 0 ? config::SyncPolicy::immediate : config::SyncPolicy::deferred;
  return config;
}

}  // namespace trireme::planner::testing
