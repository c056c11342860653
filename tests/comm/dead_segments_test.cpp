// SPDX-License-Identifier: Apache-2.0
#include "../../src/comm/dead_segments.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

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

TEST_F(DeadSegments, NeedNoDirectory) { remove_dead_segments(root_ / "none"); }

}  // namespace
}  // namespace trireme::comm
