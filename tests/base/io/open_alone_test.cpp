// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/open_alone.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "support/failing_calls.hpp"
#include "support/temporary_directory.hpp"

namespace trireme::io {
namespace {

class OpenAlone : public testing::Test {
 protected:
  void TearDown() override { test::all_calls_work(); }
  const test::TemporaryDirectory root_;
  const std::string path_ = root_ / "file.partial";
};

TEST_F(OpenAlone, LetsOneProcessAtATimeIn) {
  const int first = open_alone(path_, O_WRONLY | O_CREAT);
  ASSERT_GE(first, 0);
  EXPECT_EQ(open_alone(path_, O_WRONLY | O_CREAT), -1);
  EXPECT_EQ(errno, EWOULDBLOCK);
  ::close(first);
  const int second = open_alone(path_, O_WRONLY | O_CREAT);
  EXPECT_GE(second, 0);
  ::close(second);
}

TEST_F(OpenAlone, EndsWhereThePathCannotBeExamined) {
  test::failing_looks = {.path = "file.partial", .error = EIO};
  EXPECT_EQ(open_alone(path_, O_WRONLY | O_CREAT), -1);
  EXPECT_EQ(errno, EIO);
}

TEST_F(OpenAlone, IsNotEndedBySignals) {
  test::failing_opens = {.path = "file.partial", .error = EINTR, .times = 2};
  const int descriptor = open_alone(path_, O_WRONLY | O_CREAT);
  EXPECT_GE(descriptor, 0);
  ::close(descriptor);
}

}  // namespace
}  // namespace trireme::io
