// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/standard_error.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/temporary_directory.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Standard error is a pipe while one lives.
class PipedStandardError {
 public:
  PipedStandardError() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  PipedStandardError(const PipedStandardError&) = delete;
  PipedStandardError& operator=(const PipedStandardError&) = delete;
  ~PipedStandardError() {
    ::dup2(before_, STDERR_FILENO);
    for (const int descriptor : {ends_[0], ends_[1], before_}) ::close(descriptor);
  }
  void fill() const {
    ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string bytes(4096, '.');
    while (::write(ends_[1], bytes.data(), bytes.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
  }
  [[nodiscard]] std::string read_all() const {
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t got = 0; (got = ::read(ends_[0], bytes.data(), bytes.size())) > 0;)
      text.append(bytes.data(), static_cast<std::size_t>(got));
    return text;
  }

 private:
  int before_;
  std::array<int, 2> ends_{};
};

TEST(StandardError, AReaderThatStandsStillIsWaitedForOnceAndItsMessagesAreInTheFile) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() + "/messages.log";
  const PipedStandardError piped;
  keep_messages(path, false);
  write_to_standard_error("read\n");
  piped.fill();
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) write_to_standard_error("not read\n");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));
  const std::string read = piped.read_all();
  EXPECT_TRUE(read.starts_with("read\n....")) << read.substr(0, 20);
  EXPECT_EQ(read.find("not read"), std::string::npos);
  write_to_standard_error("read again\n");
  EXPECT_EQ(piped.read_all(), "(100 messages dropped: standard error was not read)\nread again\n");
  const std::string kept = contents(path);
  EXPECT_TRUE(kept.ends_with("not read\nread again\n"));
  EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 102);
  write_last_message("the end\n");
  EXPECT_EQ(piped.read_all(), "the end\n");
  EXPECT_TRUE(contents(path).ends_with("read again\nthe end\n"));
}

TEST(StandardError, OtherRanksKeepOnlyWhatWasDropped) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path() + "/messages-rank1.log";
  const PipedStandardError piped;
  keep_messages(path, true);
  write_to_standard_error("read\n");
  EXPECT_FALSE(std::filesystem::exists(path));
  piped.fill();
  write_to_standard_error("not read\n");
  EXPECT_EQ(contents(path), "not read\n");
  (void)piped.read_all();
}

TEST(StandardError, AnErrorOfItIsNoReasonToWait) {
  const int before = ::dup(STDERR_FILENO);
  ::close(STDERR_FILENO);
  const auto begin = Clock::now();
  write_to_standard_error("nowhere\n");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
  ::dup2(before, STDERR_FILENO);
  ::close(before);
}

}  // namespace
}  // namespace trireme
