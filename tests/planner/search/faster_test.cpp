// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/search/faster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "moving_peaks.hpp"
#include "trireme/config/load.hpp"
#include "trireme/planner/advice.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

config::RunConfig eight_billion(const std::vector<std::string>& overrides) {
  return config::parse_run_file(R"(
[model]
vocab_size = 128256
hidden_size = 4096
intermediate_size = 14336
layers = 32
heads = 32
kv_heads = 8
[data]
train = "tokens.bin"
seq_len = 4096
[batch]
global = 128
micro = 1
[train]
steps = 1
[device]
type = "cuda"
)",
                                "faster", overrides);
}

const Speedup* find(const std::vector<Speedup>& speedups, std::string_view line) {
  const auto found = std::find_if(speedups.begin(), speedups.end(), [&](const auto& s) { return s.line == line; });
  return found == speedups.end() ? nullptr : &*found;
}

/// A reduction in bf16 is an all-to-all of ours on GPUs: between nodes it sends four times what NCCL's fp32 ring does.
TEST(Speedups, AdviseAgainstBf16ReductionsBetweenNodes) {
  const Machine machine = load_machine("h100");
  const config::RunConfig wire = eight_billion({"precision.reduce=bf16_wire"});
  const auto found = speedups(wire, 64, machine);
  const Speedup* ring = find(found, "precision.reduce = \"fp32\"");
  ASSERT_NE(ring, nullptr) << to_text(found, machine);
  EXPECT_THAT(ring->note, HasSubstr("4 times as much between nodes"));
  const double fp32 = predict(eight_billion({}), 64, machine).tokens_per_second();
  EXPECT_NEAR(1 + ring->gain, fp32 / predict(wire, 64, machine).tokens_per_second(), 0.02);
  EXPECT_EQ(find(speedups(eight_billion({}), 64, machine), "precision.reduce = \"fp32\""), nullptr);
}

TEST(Speedups, AreThoseOfARunWithThem) {
  const Machine machine = load_machine("h100");
  const config::RunConfig config = eight_billion({"memory.recompute=block", "memory.budget=40GiB"});
  const double now = predict(config, 64, machine).tokens_per_second();
  const auto found = speedups(config, 64, machine);
  ASSERT_GE(found.size(), 3U);
  bool fits = true;
  for (const Speedup& speedup : found) {
    EXPECT_GE(speedup.gain, 0.01);
    EXPECT_LE(speedup.fits, fits) << "what fits comes first";
    fits = speedup.fits;
    EXPECT_EQ(speedup.fits, speedup.memory <= Bytes{40LL << 30});
    if (speedup.line.find(", ") != std::string::npos) continue;
    const auto with = changed(config, {speedup.line});
    ASSERT_TRUE(with);
    const Prediction p = predict(*with, 64, machine);
    EXPECT_NEAR(p.tokens_per_second() / now - 1, speedup.gain, 0.02) << speedup.line;
    EXPECT_EQ(p.memory.total(), speedup.memory) << speedup.line;
  }
  EXPECT_THAT(to_text(found, machine), HasSubstr("to be faster on h100"));
}

/// The limit is between both predictions where they differ, else at them.
TEST(Speedups, FitWhereAllLayersFit) {
  const Machine machine = load_machine("h100");
  std::mt19937 random(7);
  int between = 0, equal = 0;
  for (int i = 0; between < 2; ++i) {
    ASSERT_LT(i, 200);
    config::RunConfig config = testing::run_whose_peak_may_move(random);
    config.memory.budget = Bytes{1LL << 40};
    for (const Speedup& change : speedups(config, 4, machine)) {
      const auto with = changed(config, {change.line});
      if (change.line.find(", ") != std::string::npos || !with) continue;
      const config::Resolved mesh = config::resolve(*with, 4);
      const Bytes few = predict_memory(*with, mesh, true).total(), all = predict_memory(*with, mesh).total();
      ASSERT_LE(few, all) << "what is too large with a few layers is so with all";
      EXPECT_EQ(change.memory, all);
      if (few == all && ++equal > 4) continue;
      for (const Bytes limit : {few, Bytes{(few.value + all.value) / 2}, all}) {
        config.memory.budget = limit;
        const auto found = speedups(config, 4, machine);
        const Speedup* again = find(found, change.line);
        ASSERT_NE(again, nullptr);
        EXPECT_EQ(again->fits, all <= limit) << change.line;
        EXPECT_EQ(again->memory, all) << "not larger with a few layers than the limit";
      }
      between += static_cast<int>(few < all);
    }
  }
}

}  // namespace
}  // namespace trireme::planner
