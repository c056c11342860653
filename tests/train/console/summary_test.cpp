// SPDX-License-Identifier: Apache-2.0
#include "train/console/summary.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/temporary_directory.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::train {
namespace {

namespace files = std::filesystem;

TEST(RunTotals, AreOneSentence) {
  RunTotals totals;
  EXPECT_EQ(totals.steps(), 0);
  totals.add_step(0.5, 1000, std::nullopt);  // skipped
  EXPECT_EQ(totals.text(1), "trained 1 step in 1.0 s: no loss, 1k tokens at 2k tokens/s\n");
  totals.add_step(0.5, 1000, 5.25);
  totals.add_step(1, 1000, 1.5);
  totals.add_evaluation(1.75);
  EXPECT_EQ(totals.text(964),
            "trained 3 steps in 16 min 04 s: loss 5.2500 to 1.5000, validation 1.7500, 3k tokens at 1.5k tokens/s\n");
}

TEST(NextCommands, NameWhatTheRunLeft) {
  const test::TemporaryDirectory root;
  config::RunConfig config;
  config.run.output = root / "a run";
  config.checkpoint.directory = root / "checkpoints";
  config.data.tokenizer = "bytes";
  const std::string report = "  trireme report '" + config.run.output + "'\n";
  EXPECT_EQ(next_commands(config, 8), "next:\n" + report);

  const std::string checkpoint = config.checkpoint.directory + "/step-00000008";
  files::create_directories(checkpoint);
  EXPECT_EQ(next_commands(config, 8), "next:\n  trireme generate " + checkpoint + " --prompt \"...\"\n" + report);

  config.data.tokenizer = "";
  config.data.validation = {{.path = "held-out.bin"}};
  config.checkpoint.keep_best = "";
  io::write_text(config.checkpoint.directory + "/best.json", R"({"step":8,"eval_loss":1.25})");
  EXPECT_EQ(next_commands(config, 8), "best checkpoint: " + checkpoint +
                                          " (validation loss 1.2500)\nnext:\n  trireme generate " + checkpoint +
                                          " --prompt \"...\" --tokenizer NAME\n  trireme evaluate " + checkpoint +
                                          " --data held-out.bin\n" + report);

  // An export of an earlier run with other settings is not this run's model.
  files::create_directories(config.run.output + "/export");
  EXPECT_EQ(next_commands(config, 8).find("/export"), std::string::npos);
  config.run.export_when = config::Export::end;
  EXPECT_NE(next_commands(config, 8).find("generate '" + config.run.output + "/export'"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
