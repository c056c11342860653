// SPDX-License-Identifier: Apache-2.0
#include "train/console/output.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"

namespace trireme::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A pipe, SIGPIPE ignored, and what is logged meanwhile.
class OutputTest : public testing::Test {
 protected:
  OutputTest() {
    EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0);
    old_handler_ = std::signal(SIGPIPE, SIG_IGN);
    old_sink_ = log::set_sink([this](log::Level, std::string_view line) { logged_.emplace_back(line); });
  }
  ~OutputTest() override {
    log::set_sink(old_sink_);
    (void)std::signal(SIGPIPE, old_handler_);
    close_reader();
    ::close(ends_[1]);
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(ends_[0]);
    ends_[0] = -1;
  }
  /// Everything in the pipe.
  std::string take() {
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 65536> buffer{};
    for (ssize_t n = 0; (n = ::read(ends_[0], buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<std::size_t>(n));
    return text;
  }
  [[nodiscard]] int writer() const { return ends_[1]; }

  std::vector<std::string> logged_;

 private:
  std::array<int, 2> ends_{};
  void (*old_handler_)(int) = nullptr;
  log::Sink old_sink_;
};

TEST_F(OutputTest, EndsALineThatIsRewrittenBeforeAnythingElse) {
  Output output(writer());
  output.rewrite("step 1");
  output.write("");
  output.rewrite("step 2");
  output.write("saved\n");
  output.finish_line();
  output.rewrite("step 3");
  output.finish_line();
  EXPECT_EQ(take(), "\r\033[Kstep 1\r\033[Kstep 2\nsaved\n\r\033[Kstep 3\n");
}

TEST_F(OutputTest, WritesWhatItIsGiven) {
  Output output(writer());
  output.write("step=1\n");
  output.write(std::string(20'000, 'x'));
  EXPECT_EQ(take(), "step=1\n" + std::string(20'000, 'x'));
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(OutputTest, SkipsAClosedReaderAndReportsItOnce) {
  Output output(writer());
  close_reader();
  for (int i = 0; i < 3; ++i) output.write("step\n");
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("training continues")));
}

TEST_F(OutputTest, PassesOverAFullDisk) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  Output output(full);
  for (int i = 0; i < 3; ++i) output.write("step\n");
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("No space left")));
  ::close(full);
}

TEST_F(OutputTest, LeavesAReaderBehindThatStandsStillAndCatchesUpLater) {
  Output output(writer(), 0.01);
  const std::string line = std::string(99, '.') + '\n';
  for (int i = 0; i < 2000; ++i) output.write(line);  // 200 kB into a pipe of 64
  EXPECT_THAT(logged_, ElementsAre(HasSubstr("not being read")));
  (void)take();
  output.write("again\n");
  const std::string rest = take();
  EXPECT_THAT(rest, HasSubstr("lines dropped"));
  EXPECT_TRUE(rest.ends_with("\nagain\n")) << rest;
}

}  // namespace
}  // namespace trireme::train
