// SPDX-License-Identifier: Apache-2.0
#include "cli/run_command.hpp"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/start/front_page.hpp"

namespace trireme::cli {
namespace {

/// Error message for this command line, which cannot be parsed.
std::string message(std::vector<std::string> words) {
  CLI::App app{"", "trireme"};
  describe_program(app, "");
  Action chosen;
  add_train(app, chosen);
  add_plan(app, chosen, [](config::RunConfig config) { return config; });
  add_generate(app, chosen);
  words.insert(words.begin(), "trireme");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const int count = static_cast<int>(arguments.size());
  try {
    app.parse(count, arguments.data());
  } catch (const CLI::ParseError& mistake) {
    return message_on(mistake, app, count, arguments.data());
  }
  return "no mistake";
}

TEST(MessageOn, NamesTheUnknownWordNotWhatIsMissingBecauseOfIt) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--verison"}, "--verison is not an option of trireme; did you mean --version. See `trireme --help`."},
      {{"--zzz", "train"}, "--zzz is not an option of trireme. See `trireme --help`."},
      {{"--set", "a.b=1", "train", "r.toml"},
       "--set is not an option of trireme; options of a command come after its name. See `trireme --help`."},
      {{"trian", "r.toml"}, "\"trian\" is not a command; did you mean train. See `trireme --help`."},
      {{"generate", "-p", "x"},
       "-p is not an option of generate; did you mean --prompt. See `trireme generate --help`."},
      {{"generate", "m", "--promt", "x"},
       "--promt is not an option of generate; did you mean --prompt. See `trireme generate --help`."},
      {{"generate", "m", "-t", "1"}, "-t is not an option of generate. See `trireme generate --help`."},  // several
      {{"train", "--steps", "9"},
       "--steps is not an option of train; keys of the run file are set with --set SECTION.KEY=VALUE. See `trireme "
       "train --help`."},
      {{"plan", "--serach", "-o", "x"},
       "--serach is not an option of plan; did you mean --search. See `trireme plan --help`."},
  };
  for (const auto& [words, said] : cases) EXPECT_EQ(message(words), said);
}

TEST(MessageOn, KeepsMistakesThatNoUnknownWordExplains) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "A subcommand is required. See `trireme --help`."},
      {{"train"}, "RUN.toml is required. See `trireme train --help`."},
      {{"generate", "m", "--prompt"}, "--prompt requires a value. See `trireme generate --help`."},
      {{"generate", "--prompt", "--x"}, "MODEL is required. See `trireme generate --help`."},  // a value
      {{"generate", "--prompt", "x", "--temperature", "-1"},
       "--temperature: -1 is not a number from 0 to 1000000. See `trireme generate --help`."},
      {{"train", "r.toml", "--set", "a.b", "5"},
       "The following argument was not expected: 5. --set takes SECTION.KEY=VALUE without a blank, not a.b. See "
       "`trireme train --help`."},
  };
  for (const auto& [words, said] : cases) EXPECT_EQ(message(words), said);
  const std::string both = message({"train", "r.toml", "--try", "many", "--nope"});
  EXPECT_NE(both.find("--nope is not an option of train"), std::string::npos) << both;
  EXPECT_NE(both.find("--try"), std::string::npos) << both;
}

}  // namespace
}  // namespace trireme::cli
