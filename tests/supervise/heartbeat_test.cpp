// SPDX-License-Identifier: Apache-2.0
#include "trireme/supervise/heartbeat.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "support/temporary_directory.hpp"
#include "trireme/base/io/flush.hpp"

namespace {

std::atomic<bool> slow_disk = false;

}  // namespace

/// The C library's, for a disk that is slow until a test lets it go on.
extern "C" int fsync(int file) {
  while (slow_disk) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace trireme::supervise {
namespace {

using namespace std::chrono_literals;

class HeartbeatTest : public testing::Test {
 protected:
  /// Whether `heartbeat` saw a beat: it follows the call of on_progress, in another thread.
  [[nodiscard]] static bool has_beaten(Heartbeat& heartbeat) {
    return heartbeat.last() != Heartbeat::Clock::time_point{};
  }

  /// Whether no progress comes any more. Looks that a busy machine makes late are waited for.
  [[nodiscard]] static bool ends(const std::atomic<int>& progress) {
    for (int i = 0; i < 100; ++i) {
      const int before = progress;
      std::this_thread::sleep_for(800ms);
      if (progress == before) return true;
    }
    return false;
  }

  const test::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "heartbeat";
};

TEST_F(HeartbeatTest, IsSeenByOtherRanks) {
  Heartbeat here(path_, 0.04, 0), there(path_, 0.04, 0);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(there.last(), Heartbeat::Clock::time_point{}) << "nobody has moved";
  here.beat();
  std::this_thread::sleep_for(20ms);
  const auto seen = there.last();
  EXPECT_NE(seen, Heartbeat::Clock::time_point{});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(there.last(), seen) << "it has not moved since";
  here.beat();
  std::this_thread::sleep_for(20ms);
  EXPECT_GT(there.last(), seen);
}

TEST_F(HeartbeatTest, OfAnEarlierRunDoesNotCount) {
  EXPECT_EQ(heartbeat_time(path_), 0);
  std::ofstream(path_) << "";
  Heartbeat heartbeat(path_, 0.04, heartbeat_time(path_));
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(heartbeat.last(), Heartbeat::Clock::time_point{});
}

TEST_F(HeartbeatTest, LeavesNothingBehindShortWork) {
  Heartbeat heartbeat(path_, 600, 0);
  heartbeat.beat();
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(HeartbeatTest, ComesWhileBytesMoveAndNotWhileTheyRest) {
  Heartbeat here(path_, 0.2, 0), there(path_, 0.2, 0);
  std::atomic<int> progress = 0;
  const FileWork work(here, [&] { ++progress; });
  std::ofstream file(directory_ / "shard", std::ios::binary);
  for (int i = 0; i < 6000 && (progress < 3 || !has_beaten(there)); ++i) {
    file << std::string(4096, 'x') << std::flush;
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_GE(progress, 3);
  EXPECT_TRUE(has_beaten(there));
  EXPECT_TRUE(ends(progress)) << "a rank that is stuck in a file system";
}

TEST_F(HeartbeatTest, ComesWhileAFileIsFlushedButNotForEver) {
  const std::string file = directory_ / "shard";
  std::ofstream(file) << "bytes";
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  Heartbeat here(path_, 0.5, 0), there(path_, 0.5, 0);
  std::atomic<int> progress = 0;
  const FileWork work(here, [&] { ++progress; });
  slow_disk = true;
  std::jthread flush([&] { EXPECT_EQ(io::flush_to_disk(descriptor), 0); });
  for (int i = 0; i < 1000 && (progress < 3 || !has_beaten(there)); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_GE(progress, 3);
  EXPECT_TRUE(has_beaten(there));
  EXPECT_TRUE(ends(progress)) << "a disk that does not come back";
  slow_disk = false;
  flush.join();
  EXPECT_FALSE(io::flushing_since());
  ::close(descriptor);
}

}  // namespace
}  // namespace trireme::supervise
