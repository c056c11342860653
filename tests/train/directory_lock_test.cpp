// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/directory_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/topology.hpp"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Lock : public testing::Test {
 protected:
  [[nodiscard]] std::string refusal(double sign_of_life_seconds = 0.1) const {
    try {
      const DirectoryLock lock(directory_, "run.output", sign_of_life_seconds);
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }
  void left_behind(const std::string& text) const { std::ofstream(file()) << text; }
  [[nodiscard]] std::string file() const { return directory_ + "/.job.lock"; }

  const test::TemporaryDirectory own_;
  const std::string& directory_ = own_.path();
};

TEST_F(Lock, RefusesASecondJobNamingTheFirst) {
  setenv("SLURM_JOB_ID", "4711", 1);
  {
    const DirectoryLock first(directory_, "run.output");
    unsetenv("SLURM_JOB_ID");
    const std::string said = refusal();
    EXPECT_THAT(said, HasSubstr("run.output " + directory_ + " is in use by another job: job 4711, process " +
                                std::to_string(::getpid()) + " on " + comm::hostname()));
  }
  EXPECT_EQ(refusal(), "") << "given back";
  EXPECT_EQ(fs::file_size(file()), 0U);
}

TEST_F(Lock, OfADeadProcessOfThisNodeIsTakenOver) {
  left_behind("job 1\nhost " + comm::hostname() + "\npid 2147483000\nsince yesterday\n");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Lock, OfThisJobRequeuedIsTakenOver) {
  left_behind("job 12\nhost elsewhere\npid 7\nsince yesterday\n");
  setenv("SLURM_JOB_ID", "12", 1);
  EXPECT_EQ(refusal(1e6), "") << "without waiting for a sign of life";
  unsetenv("SLURM_JOB_ID");
}

TEST_F(Lock, OfAnotherNodeCountsWhileThatShowsLife) {
  const std::string text = "job 12\nhost elsewhere\npid 7\nsince yesterday\n";
  left_behind(text);
  EXPECT_EQ(refusal(), "") << "no sign of life";
  left_behind(text);
  std::atomic<bool> stop = false;
  {
    std::jthread other([&] {  // the lock of its node does not reach this one, the file's time does
      while (!stop) {
        fs::last_write_time(file(), fs::file_time_type::clock::now());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    EXPECT_THAT(refusal(1), HasSubstr("job 12, process 7 on elsewhere"));
    stop = true;
  }
}

TEST_F(Lock, GivesSignsOfLife) {
  const DirectoryLock lock(directory_, "run.output", 0.02);
  const auto before = fs::last_write_time(file());
  for (int i = 0; i < 500 && fs::last_write_time(file()) == before; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NE(fs::last_write_time(file()), before);
}

TEST_F(Lock, InADirectoryThatIsNotThereSaysSo) {
  EXPECT_THROW(DirectoryLock("/proc/no-such-directory", "run.output"), WriteError);
}

}  // namespace
}  // namespace trireme::train
