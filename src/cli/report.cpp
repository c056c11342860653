// SPDX-License-Identifier: Apache-2.0
//
// trireme report: runs as one HTML page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/front_page.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/make_directories.hpp"
#include "trireme/base/io/output.hpp"
#include "trireme/base/text.hpp"
#include "trireme/report/page.hpp"

namespace trireme::cli {
namespace {

int write_report(const std::vector<std::string>& directories, const std::string& path) {
  if (io::status_of(path).kind == io::PathKind::directory)
    throw WriteError(fmt::format("cannot write {}: Is a directory; name a file in it", path));
  for (const std::string& directory : directories) {
    const std::vector<std::string> inputs = report::files_of_run(directory);
    io::check_output_is_no_input("report", path, inputs);
  }
  std::vector<report::RunRecord> runs;
  for (const std::string& directory : directories) runs.push_back(report::read_run(directory));
  io::make_directory_of(path);
  io::replace_text(path, report::page(runs));
  fmt::print("wrote {}\n", printable(path));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  const auto directories = std::make_shared<std::vector<std::string>>();
  const auto path = std::make_shared<std::string>("report.html");
  CLI::App* command = add_command(app, "report");
  command->add_option("RUN", *directories, "The run.output of a run; several runs are shown side by side")->required();
  command->add_option("-o,--output", *path, "The page to write: one HTML file that needs no network")
      ->capture_default_str();
  command->footer(
      "The timeline, and memory over the operations of a step, are those of metrics.trace_steps.\n\n"
      "Examples:\n"
      "  trireme report runs/quickstart\n"
      "  trireme report runs/quickstart runs/book -o compared.html");
  command->callback(
      [&chosen, directories, path] { chosen = [directories, path] { return write_report(*directories, *path); }; });
}

}  // namespace trireme::cli
