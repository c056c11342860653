// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save/output_directory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/load.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void prepare(const config::RunConfig& config, const std::string& given = {}) {
  prepare_output_directory(config);
  write_run_file(config, given);
}

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

  [[nodiscard]] static std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  const test::TemporaryDirectory root_;
  config::RunConfig config_;
};

TEST_F(OutputDirectory, IsMadeWithTheEffectiveRunFileInIt) {
  prepare(config_);
  EXPECT_EQ(config::print_run_file(config::parse_run_file(text_of(config_.run.output + "/run.toml"), "run.toml")),
            config::print_run_file(config_));
}

TEST_F(OutputDirectory, LeavesAloneTheRunFileThatWasGiven) {
  prepare(config_);
  const std::string path = config_.run.output + "/run.toml", other = config_.run.output + "/run.effective.toml";
  const std::string before = text_of(path);
  config_.train.steps = 77;
  prepare(config_, root_ / "new/run/../run/run.toml");
  EXPECT_EQ(text_of(path), before) << "by whatever path";
  EXPECT_THAT(text_of(other), HasSubstr("steps = 77"));
  config_.train.steps = 78;
  prepare(config_, other);
  EXPECT_THAT(text_of(path), HasSubstr("steps = 78"));
  EXPECT_THAT(text_of(other), HasSubstr("steps = 77"));
  const std::string mine = write("run.toml", "# mine\n");
  fs::create_symlink(mine, root_ / "link.toml");
  config_.train.steps = 79;
  prepare(config_, root_ / "link.toml");
  EXPECT_EQ(text_of(mine), "# mine\n");
  EXPECT_THAT(text_of(other), HasSubstr("steps = 79"));
}

TEST_F(OutputDirectory, KeepsARunFileThatNoRunWrote) {
  const std::string mine = write("run.toml", "# mine\n[train]\nsteps = 1\n");
  prepare(config_);
  EXPECT_EQ(text_of(mine), "# mine\n[train]\nsteps = 1\n");
  EXPECT_TRUE(fs::exists(config_.run.output + "/run.effective.toml"));
}

TEST_F(OutputDirectory, ReplacesItsRunFileAsAWhole) {
  prepare(config_);
  const std::string path = config_.run.output + "/run.toml";
  const std::ifstream reader(path);  // of the file that was there
  config_.train.steps = 77;
  prepare(config_);
  std::stringstream text;
  text << reader.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("steps = 1 ")) << "who reads the old one is not cut off";
  EXPECT_THAT(text_of(path), HasSubstr("steps = 77"));
}

TEST_F(OutputDirectory, OfTheWeightsThatTheRunBeginsWithIsRefusedForExports) {
  config_.run.export_when = config::Export::end;
  fs::create_directories(config_.run.output + "/export");
  config_.model.from = config_.run.output + "/export/";
  EXPECT_THROW(check_output_directory(config_), CheckpointError);
  config_.run.export_when = config::Export::never;
  EXPECT_NO_THROW(check_output_directory(config_));
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
  EXPECT_NO_THROW(prepare(config_));
}

TEST_F(OutputDirectory, OfARunThatEndedBeforeItsFirstCheckpointIsTakenAgain) {
  (void)write("metrics.jsonl", "{}\n");
  fs::create_directories(config_.checkpoint.directory);
  EXPECT_NO_THROW(check_output_directory(config_));
  config_.checkpoint.resume = "none";
  EXPECT_THROW(check_output_directory(config_), CheckpointError);
}

TEST_F(OutputDirectory, WithCheckpointsResumesUnlessResumeIsNone) {
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
  EXPECT_NO_THROW(prepare(config_));
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

TEST_F(OutputDirectory, ChangedSettingsAreThoseOfBothVersions) {
  const std::string now = config::print_run_file(config_);
  EXPECT_THAT(changed_settings(now, config_), testing::IsEmpty());
  // An older version knew fewer keys: their defaults are no change, other values are.
  std::string older = now;
  const std::size_t at = older.find("z_loss = ");
  older.erase(at, older.find('\n', at) + 1 - at);
  EXPECT_THAT(changed_settings(older, config_), testing::IsEmpty());
  EXPECT_THAT(changed_settings(older + "[removed]\nkey = 1\n", config_), testing::IsEmpty());
  EXPECT_THROW((void)changed_settings("\x01", config_), ConfigError);
  config_.loss.z_loss = 0.5;
  EXPECT_THAT(changed_settings(older, config_), testing::ElementsAre("loss.z_loss: saved 0.0, now 0.5"));
}

}  // namespace
}  // namespace trireme::train

// Fault, start: `run.output/run.toml` is the given run file, or a user's -> it stays; the effective one is
//   `run.effective.toml`
