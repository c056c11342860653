// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/exit_report.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <sstream>
#include <system_error>
#include <vector>

namespace trireme {
namespace {

using testing::HasSubstr;

ExitReport report_of(const auto& exception) { return exit_report(std::make_exception_ptr(exception)); }

ExitReport report_of_errno(std::errc error) { return report_of(std::system_error(std::make_error_code(error))); }

TEST(ExitReport, KeepsCodeAndTextOfAnError) {
  const ExitReport report = report_of(DataError("no tokens.bin"));
  EXPECT_EQ(report.code, ExitCode::data);
  EXPECT_EQ(report.text, "no tokens.bin");
}

TEST(ExitReport, BlamesTheEnvironmentForExhaustedMemoryThreadsAndDescriptors) {
  for (const ExitReport& report :
       {report_of(std::bad_alloc()), report_of(std::runtime_error("could not execute a primitive")),
        report_of_errno(std::errc::not_enough_memory), report_of_errno(std::errc::resource_unavailable_try_again),
        report_of_errno(std::errc::too_many_files_open), report_of_errno(std::errc::too_many_files_open_in_system)}) {
    EXPECT_EQ(report.code, ExitCode::environment) << report.text;
    EXPECT_THAT(report.text, HasSubstr("ulimit")) << "what to do";
  }
}

TEST(ExitReport, BlamesTheDiskForFailedWrites) {
  for (const std::errc error : {std::errc::no_space_on_device, std::errc::file_too_large, std::errc::io_error})
    EXPECT_EQ(report_of_errno(error).code, ExitCode::write);
}

TEST(ExitReport, CallsEverythingElseABug) {
  EXPECT_EQ(report_of(std::runtime_error("odd")).code, ExitCode::bug);
  EXPECT_THAT(report_of(std::runtime_error("odd")).text, HasSubstr("odd (unexpected: report this as a bug"));
  EXPECT_EQ(report_of_errno(std::errc::permission_denied).code, ExitCode::bug);
  EXPECT_EQ(report_of(3).code, ExitCode::bug);
}

TEST(ExitMeanings, AreThoseOfTheDocumentation) {
  std::ifstream page(TRIREME_SOURCE_DIR "/docs/troubleshooting.md");
  std::vector<std::string> documented;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| exit code |")) inside = true;
    if (inside && !line.starts_with("|")) break;
    std::erase(line, '`');
    if (inside && line.size() > 2 && line[2] >= '0' && line[2] <= '9')
      documented.push_back(line.substr(0, line.find('|', line.find('|', 1) + 1) + 1));
  }
  std::vector<std::string> expected;
  for (const ExitMeaning& one : exit_meanings)
    expected.push_back(fmt::format("| {} | {} |", static_cast<int>(one.code), one.meaning));
  expected.emplace_back("| 128+n | ended by signal n |");
  EXPECT_EQ(documented, expected);
}

TEST(ExitMeanings, AreByCodeAndPrinted) {
  EXPECT_TRUE(std::ranges::is_sorted(exit_meanings, {}, &ExitMeaning::code));
  const std::string table = exit_code_table();
  for (const ExitMeaning& one : exit_meanings) EXPECT_THAT(table, HasSubstr(one.meaning));
}

}  // namespace
}  // namespace trireme
