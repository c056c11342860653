// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace trireme::test {

/// Why a test is skipped that this machine could run if something were installed: GTEST_SKIP() << not_here << "...".
/// Other reasons (a number of ranks) are those of tests that run elsewhere in the same suite.
inline constexpr const char* not_here = "not here: ";

/// Counts them, so that ctest counts the program as skipped: its exit code is 77 when nothing failed.
class SkipsHere : public testing::EmptyTestEventListener {
 public:
  static constexpr int exit_code = 77;
  [[nodiscard]] bool any() const { return any_; }

 private:
  void OnTestStart(const testing::TestInfo& test) override { test_ = &test; }
  void OnTestPartResult(const testing::TestPartResult& part) override {
    const std::string_view message = part.message();
    const std::size_t at = message.find(not_here);
    if (!part.skipped() || at == std::string_view::npos) return;
    any_ = true;
    const std::string why(message.substr(at + std::string_view(not_here).size()));
    std::printf("skipped: %s.%s: %s\n", test_->test_suite_name(), test_->name(), why.c_str());
  }

  const testing::TestInfo* test_ = nullptr;
  bool any_ = false;
};

}  // namespace trireme::test
