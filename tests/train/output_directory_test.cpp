// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/output_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class OutputDirectory : public testing::Test {
 protected:
  OutputDirectory() {
    config_ = config::parse_run_file(
        "[model]\nvocab_size = 17\nhidden_size = 8\nintermediate_size = 8\nlayers = 1\nheads = 1\n[data]\ntrain = "
        "\"a.bin\"\nseq_len = 8\n[batch]\nglobal = 1\nmicro = 1\n[train]\nsteps = 1\n",
        "test");
    config_.run.output = root_ / "new/run";
    config_.checkpoint.directory = config_.run.output + "/checkpoints";
  }

  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(config_.run.output);
    std::ofstream(config_.run.output + "/" + name) << text;
    return config_.run.output + "/" + name;
  }

  const test::TemporaryDirectory root_;
  config::RunConfig config_;
};

TEST_F(OutputDirectory, IsMadeWithTheEffectiveRunFileInIt) {
  prepare_output_directory(config_);
  std::stringstream text;
  text << std::ifstream(config_.run.output + "/run.toml").rdbuf();
  EXPECT_EQ(config::print_run_file(config::parse_run_file(text.str(), "run.toml")), config::print_run_file(config_));
}

TEST_F(OutputDirectory, IsNotTouchedByTheCheck) {
  check_output_directory(config_);
  EXPECT_TRUE(fs::is_empty(root_.path()));
}

TEST_F(OutputDirectory, IsRefusedWhenItHoldsAnEarlierRun) {
  (void)write("metrics.jsonl", "{}\n");
  try {
    check_output_directory(config_);
    FAIL() << "accepted";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("run.overwrite = true"));
    EXPECT_THAT(error.what(), HasSubstr(config_.run.output));
  }
  config_.run.overwrite = true;
  EXPECT_NO_THROW(prepare_output_directory(config_));
}

TEST_F(OutputDirectory, OfARunThatEndedBeforeItsFirstCheckpointIsTakenAgain) {
  (void)write("metrics.jsonl", "{}\n");
  fs::create_directories(config_.checkpoint.directory);
  EXPECT_NO_THROW(check_output_directory(config_));
  config_.checkpoint.resume = "none";
  EXPECT_THROW(check_output_directory(config_), CheckpointError);
}

TEST_F(OutputDirectory, WithCheckpointsGoesOnUnlessResumeIsNone) {
  (void)write("metrics.jsonl", "{}\n");
  fs::create_directories(config_.checkpoint.directory + "/step-00000010");
  EXPECT_NO_THROW(check_output_directory(config_));
  config_.checkpoint.resume = "none";
  EXPECT_THROW(check_output_directory(config_), CheckpointError);
  config_.run.overwrite = true;
  EXPECT_NO_THROW(check_output_directory(config_));
}

TEST_F(OutputDirectory, OfARunThatNeverTookAStepIsTakenAgain) {
  (void)write("metrics.jsonl", "");
  (void)write("run.toml", "# an earlier try");
  EXPECT_NO_THROW(prepare_output_directory(config_));
}

TEST_F(OutputDirectory, ThatCannotBeMadeIsAFailedWrite) {
  config_.run.output = write("a-file", "") + "/below";
  EXPECT_THROW(prepare_output_directory(config_), WriteError);
  config_.run.output = "/proc/trireme";
  EXPECT_THROW(prepare_output_directory(config_), WriteError);
}

TEST_F(OutputDirectory, WithForeignFilesInItsExportIsRefused) {
  config_.run.export_when = config::Export::end;
  fs::create_directories(config_.run.output + "/export");
  (void)write("export/thesis.tex", "years of work");
  EXPECT_THROW(check_output_directory(config_), CheckpointError);
}

}  // namespace
}  // namespace trireme::train
