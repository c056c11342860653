// SPDX-License-Identifier: Apache-2.0
#include "../../src/comm/node/dead_segments.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "support/temporary_directory.hpp"

namespace trireme::comm {
namespace {

constexpr const char* gone = "2147483000";  // no system gives out so high a number

class DeadSegments : public testing::Test {
 protected:
  [[nodiscard]] std::string put(const std::string& name) const {
    std::ofstream(root_ / name) << "bytes";
    return name;
  }
  const trireme::test::TemporaryDirectory root_;
};

TEST_F(DeadSegments, AreRemovedAndNothingElse) {
  (void)put(std::string("trireme-") + gone + "-0-123");
  const std::vector<std::string> kept{put("another-" + std::string(gone) + "-0-1"),
                                      put("trireme-" + std::to_string(::getpid()) + "-0-123"), put("trireme-1-0-5"),
                                      put("trireme-notes"), put("trireme-" + std::string(gone))};
  remove_dead_segments(root_.path());
  std::vector<std::string> left = root_.names(), expected = kept;
  std::sort(left.begin(), left.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(left, expected);
}

TEST_F(DeadSegments, AreNotThoseThatAProcessOfAnotherContainerHasLocked) {
  const std::string path = root_ / put(std::string("trireme-") + gone + "-0-123");
  const int descriptor = ::open(path.c_str(), O_RDWR);
  ASSERT_EQ(::flock(descriptor, LOCK_EX), 0);
  remove_dead_segments(root_.path());
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
  ::close(descriptor);
  remove_dead_segments(root_.path());
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST_F(DeadSegments, AreThoseOfZombiesToo) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT), 0);
  ASSERT_EQ(::kill(child, 0), 0) << "its number is still there";
  const std::string path = root_ / put("trireme-" + std::to_string(child) + "-0-123");
  remove_dead_segments(root_.path());
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  ::waitpid(child, nullptr, 0);
}

TEST_F(DeadSegments, NeedNoDirectory) {
  const std::string kept = root_ / put(std::string("trireme-") + gone + "-0-123");
  remove_dead_segments(root_ / "none");
  EXPECT_NE(::access((root_ / "none").c_str(), F_OK), 0) << "the directory was created";
  EXPECT_EQ(::access(kept.c_str(), F_OK), 0) << "a segment of another directory was removed";
}

}  // namespace
}  // namespace trireme::comm
