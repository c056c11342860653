// SPDX-License-Identifier: Apache-2.0
// Damaged run files: errors with file and line, or a plan of bytes and time.
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "planner/damaged.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner::run_file_fuzz_test {
namespace {

const std::string sound = R"([model]
vocab_size = 64
hidden_size = 16
intermediate_size = 32
layers = 4
heads = 2
kv_heads = 2
[data]
train = "tokens.bin"
seq_len = 8
[mesh]
replicate = 2
tensor = 2
pipeline = 1
[pipeline]
schedule = "1f1b"
[batch]
global = 16
micro = 2
[sync]
policy = "auto"
prefetch_bytes = 1024
[memory]
recompute = "selective"
recompute_every = 1
offload = "none"
budget = "1GB"
[train]
steps = 10
)";

constexpr std::int64_t most_ops = 20000;  ///< of a list that is planned in this test

/// Planner calls of `trireme plan` and `train` before a run.
void plan(config::RunConfig config, int ranks) {
  const config::Resolved mesh = config::resolve(config, ranks);
  if (mesh.accumulation * (config.model.layers + 2) * mesh.pipeline > most_ops) return;
  const Machine machine = load_machine("local");
  const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
  config.sync = choose_sync(config, model, mesh, step_seconds_on(machine, ranks)).sync;
  const Prediction step = predict(config, ranks, machine);
  EXPECT_TRUE(std::isfinite(step.expected.seconds) && step.expected.seconds > 0);
  EXPECT_GE(step.memory.total().value, 0);
  EXPECT_GE(step.memory.host.total().value, 0);
  if (mesh.pipeline == 1) (void)advise(config, ranks);
}

TEST(RunFileFuzz, IsMistakesWithTheirPlacesOrAPlan) {
  static const std::regex with_a_place(
      R"(run\.toml:([1-9]\d*:| \S+: missing | not a text file \(byte | the run file is empty| is JSON, not a run file; ))");
  constexpr unsigned rounds = 1500;
  int plans = 0, misfits = 0, mistakes = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    Damage damage(round);
    std::string text = sound;
    for (std::size_t times = 1 + damage.below(2); times > 0; --times) text = damage.of(text, "=#");
    SCOPED_TRACE(text);
    config::RunConfig config;
    try {
      config = config::parse_run_file(text, "run.toml");
    } catch (const ConfigError& error) {
      ++mistakes;
      ASSERT_TRUE(std::regex_search(error.what(), with_a_place)) << error.what();
      continue;
    }
    try {
      plan(config, 8);
      ++plans;
    } catch (const ConfigError& error) {  // of a run file that is sound for other numbers of ranks, or no budget
      ++misfits;
      ASSERT_FALSE(std::string_view(error.what()).empty());
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(plans, 40);
  EXPECT_GT(misfits, 3);
  EXPECT_GT(mistakes, 200);
}

}  // namespace
}  // namespace trireme::planner::run_file_fuzz_test
