// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "config/sample_run.hpp"
#include "trireme/config/load.hpp"

namespace trireme::config {
namespace {

using testing::HasSubstr;

TEST(Options, HaveUniqueNamesAndAMeaning) {
  std::set<std::string> names;
  for (const Option& option : options()) {
    EXPECT_TRUE(names.insert(option.name()).second) << option.name();
    EXPECT_FALSE(option.meaning.empty()) << option.name();
    EXPECT_FALSE(option.type.empty()) << option.name();
  }
  EXPECT_EQ(section_names().size(), 18U);
}

TEST(ExplainOptions, ShowsEveryKeyOnASeparateLine) {
  const std::string text = "\n" + explain_options(100, "");
  EXPECT_GT(options().size(), 100U);
  for (const Option& option : options()) EXPECT_THAT(text, HasSubstr("\n" + option.name() + " "));
}

TEST(ExplainOptions, WrapsLinesAndTakesASection) {
  const std::string lr = explain_options(60, "lr");
  EXPECT_THAT(lr, testing::StartsWith("[lr]\nlr.schedule = "));
  EXPECT_THAT(lr, testing::Not(HasSubstr("optimizer.lr =")));
  for (const int columns : {40, 60, 100}) {
    std::istringstream lines(explain_options(columns, ""));
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(!line.starts_with("    ") || line.size() <= static_cast<std::size_t>(columns)) << line;
  }
}

TEST(OptionsReference, EqualsTheDocumentation) {
  const std::string path = TRIREME_SOURCE_DIR "/docs/run-file.md";
  if (std::getenv("TRIREME_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << options_reference();
  std::ifstream file(path);
  EXPECT_EQ(options_reference(), std::string(std::istreambuf_iterator<char>(file), {}))
      << "run config_tests with TRIREME_UPDATE_GOLDENS=1 and look at the diff";
}

TEST(ExplainOptions, ShowsTypeAndDefault) {
  const std::string text = explain_options(100, "");
  EXPECT_THAT(text, HasSubstr("true | false"));
  EXPECT_THAT(text, HasSubstr("hidden_size / heads"));
}

}  // namespace
}  // namespace trireme::config
