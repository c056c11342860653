// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_search.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::cli::plan_search_test {
namespace {

TEST(SearchOutput, ReplacesAnUneditedFileOfASearch) {
  const test::TemporaryDirectory root;
  const std::string path = root / "run-best.toml";
  check_search_output(path);
  for (const char* text : {"[train]\nsteps = 5\n", ""}) {
    write_search_output(path, text);
    check_search_output(path);
  }
}

TEST(SearchOutput, IsRefusedWhereAUsersFileIs) {
  const test::TemporaryDirectory root;
  const std::string path = root / "run-best.toml";
  write_search_output(path, "[train]\nsteps = 5\n");
  const std::string written = io::read_text(path, 1 << 20);
  for (const std::string& text :
       {std::string(), std::string("[train]"), "[model]\n" + written, written + "# mine\n",
        written.substr(written.find('\n') + 1), written.substr(0, written.find('\n')), std::string(2 << 20, ' ')}) {
    io::write_text(path, text);
    try {
      check_search_output(path);
      ADD_FAILURE() << "it is written over: " << text.substr(0, 300);
    } catch (const ConfigError& error) {
      for (const char* part : {"run-best.toml exists and is left as it is", "with -o"})
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme::cli::plan_search_test
