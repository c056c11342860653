// SPDX-License-Identifier: Apache-2.0
//
// trireme completion and trireme man: pages made from the option tables.
#include "cli/commands.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/pages/pages.hpp"
#include "cli/start/front_page.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"

namespace trireme::cli {
namespace {

int write_man_pages(const CLI::App& app, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw WriteError(fmt::format("cannot make the folder {}: {}", directory, error.message()));
  const auto pages = man_pages(app);
  for (const auto& [name, text] : pages) io::replace_text(directory + "/" + name, text);
  fmt::print("wrote {} pages to {}\n", pages.size(), directory);
  return 0;
}

}  // namespace

void add_pages(CLI::App& app, Action& chosen) {
  CLI::App* completion = add_command(app, "completion");
  completion->footer("Example:\n  trireme completion > trireme.bash    # then: source trireme.bash");
  completion->callback([&app, &chosen] {
    chosen = [&app] {
      fmt::print("{}", bash_completion(app));
      return 0;
    };
  });
  const auto directory = std::make_shared<std::string>();
  CLI::App* man = add_command(app, "man");
  man->add_option("DIRECTORY", *directory, "Where they go, such as share/man/man1")->required();
  man->footer("Example:\n  trireme man man1    # then: man -l man1/trireme-train.1");
  man->callback(
      [&app, &chosen, directory] { chosen = [&app, directory] { return write_man_pages(app, *directory); }; });
}

}  // namespace trireme::cli
