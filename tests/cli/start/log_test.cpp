// SPDX-License-Identifier: Apache-2.0
#include "cli/start/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::cli {
namespace {

using testing::MatchesRegex;

constexpr const char* time = "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+.[0-9]+Z ";

/// Standard error after a line of each level was logged.
std::string logged(const Logger& logger, const char* level) {
  testing::internal::CaptureStderr();
  install_log(logger, level);
  log::debug("d");
  log::info("i {not a format}");
  log::warning("w");
  log::error("e");
  log::set_sink({});
  return testing::internal::GetCapturedStderr();
}

TEST(InstallLog, GivesUtcTimeAndLevelOnRankZero) {
  EXPECT_THAT(logged({}, ""), MatchesRegex(std::string(time) + "info i \\{not a format\\}\n" + time + "warning w\n" +
                                           time + "error e\n"));
}

TEST(InstallLog, NamesOtherRanksWhichLogNoInfos) {
  const Logger third{.rank = 3, .host = "node7"};
  const std::string rank = "\\[rank 3 node7\\] ";
  EXPECT_THAT(logged(third, ""),
              MatchesRegex(std::string(time) + "warning " + rank + "w\n" + time + "error " + rank + "e\n"));
  EXPECT_EQ(logged(third, "debug").find(" d\n"), std::string::npos);
}

TEST(InstallLog, LogsAtTheChosenLevel) {
  EXPECT_THAT(logged({}, "debug"), testing::HasSubstr("debug d\n"));
  EXPECT_THAT(logged({}, "error"), MatchesRegex(std::string(time) + "error e\n"));
}

TEST(InstallLog, WipesAProgressLineFirst) {
  EXPECT_TRUE(logged({.clears_line = true}, "error").starts_with("\r\033[K2"));
}

TEST(InstallLog, RefusesAnotherLevel) { EXPECT_THROW(install_log({}, "loud"), ConfigError); }

}  // namespace
}  // namespace trireme::cli
