// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/directory_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/topology.hpp"

namespace {
bool no_locks = false;          ///< as some network file systems are mounted
std::atomic<int> kill_says{0};  ///< instead of the truth: an errno
}  // namespace

extern "C" int flock(int descriptor, int operation) noexcept {
  if (no_locks) {
    errno = ENOLCK;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
}

extern "C" int kill(pid_t pid, int signal) noexcept {
  if (kill_says != 0 && signal == 0) {
    errno = kill_says;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_kill, pid, signal));
}

namespace trireme::supervise {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Lock : public testing::Test {
 protected:
  ~Lock() override {
    no_locks = false;
    kill_says = 0;
    for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "TRIREME_LIFE"}) unsetenv(name);
  }
  [[nodiscard]] std::string refusal(double heartbeat_seconds = 0.1) const {
    try {
      const DirectoryLock lock(directory_, "run.output", heartbeat_seconds);
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
                                std::to_string(::getpid()) + " on " + mpi::hostname()));
  }
  EXPECT_EQ(refusal(), "") << "given back";
  EXPECT_EQ(fs::file_size(file()), 0U);
}

TEST_F(Lock, OfADeadProcessOfThisNodeIsTakenOver) {
  left_behind("job 1\nhost " + mpi::hostname() + "\npid 2147483000\nsince yesterday\n");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Lock, OfThisJobRequeuedIsTakenOver) {
  left_behind("job 12\nstep 0\nrestarts 1\nhost elsewhere\npid 7\nsince yesterday\n");
  setenv("SLURM_JOB_ID", "12", 1);
  setenv("SLURM_RESTART_COUNT", "2", 1);
  EXPECT_EQ(refusal(1e6), "") << "without waiting for a sign of life";
}

TEST_F(Lock, OfAnEarlierStartUnderOneSupervisorIsTakenOver) {
  const std::string elsewhere = "host elsewhere\npid 7\nsince yesterday\n";
  setenv("TRIREME_LIFE", "12-77-5 3", 1);
  left_behind("life 12-77-5 2\n" + elsewhere);
  EXPECT_EQ(refusal(1e6), "") << "without waiting for a sign of life";
  const DirectoryLock mine(directory_, "run.output");
  std::ifstream text(file());
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(text), {}), HasSubstr("life 12-77-5 3\n"));
}

TEST_F(Lock, OfAnotherSupervisorsStartShowsSignsOfLife) {
  setenv("TRIREME_LIFE", "12-78-6 3", 1);
  for (const char* life : {"12-77-5 2", "12-78-6 3"}) {
    left_behind(std::string("life ") + life + "\nhost elsewhere\npid 7\nsince yesterday\n");
    std::jthread other([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        fs::last_write_time(file(), fs::file_time_type::clock::now());
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
    EXPECT_THAT(refusal(), HasSubstr("in use by another job")) << life;
  }
}

TEST_F(Lock, OfAnotherStepOfThisJobCounts) {
  setenv("SLURM_JOB_ID", "12", 1);
  setenv("SLURM_STEP_ID", "4", 1);
  no_locks = true;
  // Process 1 of this node lives.
  left_behind("job 12\nstep 3\nrestarts 0\nhost " + mpi::hostname() + "\npid 1\nsince yesterday\n");
  EXPECT_THAT(refusal(), HasSubstr("job 12, step 3, process 1 on"));
}

TEST_F(Lock, OfAProcessThatMayNotBeSignalledCounts) {
  no_locks = true;
  left_behind("job 1\nhost " + mpi::hostname() + "\npid 1\nsince yesterday\n");
  kill_says = EPERM;
  EXPECT_THAT(refusal(), HasSubstr("job 1, process 1 on"));
  kill_says = ESRCH;
  EXPECT_EQ(refusal(), "");
}

TEST_F(Lock, OfAZombieIsTakenOver) {
  no_locks = true;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  ASSERT_EQ(::kill(child, 0), 0) << "its number is still there";
  left_behind("host " + mpi::hostname() + "\npid " + std::to_string(child) + "\nsince yesterday\n");
  EXPECT_EQ(refusal(), "");
  ::waitpid(child, nullptr, 0);
}

TEST_F(Lock, OfAProcessWhoseNumberIsAnothersNowIsTakenOver) {
  no_locks = true;
  left_behind("host " + mpi::hostname() + "\npid 1\nstarted 99999999999\nsince yesterday\n");
  EXPECT_EQ(refusal(), "");
}

TEST_F(Lock, OfADeadProcessIsTakenOverAtOnceWhereItsNumberIsKnown) {
  no_locks = true;
  std::string text;
  {
    const DirectoryLock lock(directory_, "run.output");
    std::stringstream now;
    now << std::ifstream(file()).rdbuf();
    text = now.str();
  }
  const std::string mine = "\npid " + std::to_string(::getpid()) + "\n";
  ASSERT_NE(text.find(mine), std::string::npos) << text;
  left_behind(text.replace(text.find(mine), mine.size(), "\npid 2147483000\n"));
  EXPECT_EQ(refusal(1e6), "") << "without waiting for a sign of life";
}

TEST_F(Lock, IsTheLastWritersWhereNothingIsLocked) {
  no_locks = true;
  const DirectoryLock alone(directory_, "run.output");
  std::string said;
  for (bool late = true; late && said.find("job 13") == std::string::npos;) {
    std::ofstream(file()) << "";
    const auto begin = std::chrono::steady_clock::now();
    {
      std::jthread other([&] {  // it found no holder either, and writes a moment later
        while (fs::file_size(file()) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        left_behind("job 13\nhost elsewhere\npid 7\nsince now\n");
        late = std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(900);  // busy machine: repeated
      });
      said = refusal();
      if (said.empty()) left_behind("somebody");  // it empties the file, and the other one would wait for ever
    }
  }
  EXPECT_THAT(said, HasSubstr("job 13, process 7 on elsewhere"));
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
    EXPECT_THAT(refusal(20), HasSubstr("job 12, process 7 on elsewhere"));  // seen at the first sign
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

TEST_F(Lock, IsARegularFile) {
  for (const bool fifo : {true, false}) {
    ASSERT_EQ(fifo ? ::mkfifo(file().c_str(), 0600) : ::mkdir(file().c_str(), 0700), 0);
    try {
      const DirectoryLock lock(directory_, "run.output");
      ADD_FAILURE() << "it was taken for a lock";
    } catch (const WriteError& error) {
      EXPECT_THAT(error.what(), HasSubstr(".job.lock: is not a regular file"));
    }
    fs::remove(file());
  }
}

TEST_F(Lock, ReportsAMissingDirectory) {
  EXPECT_THROW(DirectoryLock("/proc/no-such-directory", "run.output"), WriteError);
}

}  // namespace
}  // namespace trireme::supervise
