// SPDX-License-Identifier: Apache-2.0
#include "cli/init/first_run_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace trireme::cli::first_run_file_test {
namespace {

/// A tiny model on `samples` sequences of 256 tokens.
FirstRun tiny_run(std::int64_t samples) {
  FirstRun run;
  run.samples = samples;
  run.sizes = {.vocab_size = 257, .hidden_size = 128, .intermediate_size = 352, .layers = 5, .heads = 4};
  run.config.model = run.sizes;
  run.config.data.seq_len = 256;
  return run;
}

TEST(ChooseTraining, TakesABatchThatOtherRanksDivide) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (const std::int64_t samples : {1, 140, 283, 700, 1149, 100000}) {
      FirstRun run = tiny_run(samples);
      run.ranks = ranks;
      Reasons reasons;
      choose_training(run, reasons);
      const std::int64_t global = run.config.batch.global, wanted = std::clamp<std::int64_t>(samples / 20, 1, 16);
      EXPECT_EQ(global % ranks, 0);
      EXPECT_TRUE(std::has_single_bit(static_cast<std::uint64_t>(global / ranks))) << global << " on " << ranks;
      EXPECT_GE(3 * global, 2 * wanted) << ranks << " ranks, " << samples << " samples";
      EXPECT_LE(3 * global, 4 * (wanted + ranks)) << ranks << " ranks, " << samples << " samples";
    }
}

TEST(ChooseTraining, WarmsUpLongEnoughInShortRunsToo) {
  for (const auto& [samples, warmup] :
       {std::pair<std::int64_t, std::int64_t>{140, 30}, {1'600, 30}, {160'000, 500}, {16'000'000, 2000}}) {
    FirstRun run = tiny_run(samples);
    Reasons reasons;
    choose_training(run, reasons);
    EXPECT_EQ(run.config.lr.warmup_steps, warmup) << run.config.train.steps;
    EXPECT_LE(3 * run.config.lr.warmup_steps, run.config.train.steps);
  }
}

}  // namespace
}  // namespace trireme::cli::first_run_file_test
