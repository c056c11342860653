// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/log.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::log {
namespace {

TEST(Log, SendsEachLineWithItsLevelToTheInstalledSink) {
  std::vector<std::string> lines;
  const Sink before = set_sink([&](Level level, std::string_view line) {
    lines.push_back(std::to_string(static_cast<int>(level)) + std::string(line));
  });
  debug("a");
  info("b");
  warning("c");
  error("d");
  set_sink(before);
  EXPECT_EQ(lines, (std::vector<std::string>{"0a", "1b", "2c", "3d"}));
}

TEST(Log, WritesWarningsAndErrorsToStandardErrorByDefault) {
  const Sink before = set_sink({});
  testing::internal::CaptureStderr();
  info("quiet");
  warning("careful");
  error("broken");
  const std::string text = testing::internal::GetCapturedStderr();
  set_sink(before);
  EXPECT_EQ(text, "warning: careful\nerror: broken\n");
}

TEST(Log, EscapesControlCharactersOfWhatItQuotes) {
  std::string seen;
  const log::Sink before = log::set_sink([&](log::Level, std::string_view line) { seen = line; });
  log::warning("key \x1b]0;x\x07\nsecond line");
  log::set_sink(before);
  EXPECT_EQ(seen, "key \\x1b]0;x\\x07\nsecond line");
}

}  // namespace
}  // namespace trireme::log
