// SPDX-License-Identifier: Apache-2.0
//
// trireme report: runs as one HTML page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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

volatile std::sig_atomic_t stop_requested = 0;

void request_stop(int /*signal*/) { stop_requested = 1; }

void check_paths(const std::vector<std::string>& directories, const std::string& path) {
  if (io::status_of(path).kind == io::PathKind::directory)
    throw WriteError(fmt::format("cannot write {}: Is a directory; name a file in it", path));
  for (const std::string& directory : directories) {
    const std::vector<std::string> inputs = report::files_of_run(directory);
    io::check_output_is_no_input("report", path, inputs);
  }
}

std::vector<report::RunRecord> read_runs(const std::vector<std::string>& directories) {
  std::vector<report::RunRecord> runs;
  for (const std::string& directory : directories) runs.push_back(report::read_run(directory));
  return runs;
}

int write_report(const std::vector<std::string>& directories, const std::string& path) {
  check_paths(directories, path);
  const std::vector<report::RunRecord> runs = read_runs(directories);
  io::make_directory_of(path);
  io::replace_text(path, report::page(runs));
  fmt::print("wrote {}\n", printable(path));
  return 0;
}

/// Writes the page every `seconds` until all runs have done their steps, or until SIGINT or SIGTERM. A directory whose
/// run has no step yet is waited for.
int watch(const std::vector<std::string>& directories, const std::string& path, int seconds) {
  check_paths(directories, path);
  for (const std::string& directory : directories)
    if (io::status_of(directory).kind != io::PathKind::directory) (void)report::read_run(directory);  // refuses it
  struct sigaction action {};
  action.sa_handler = request_stop;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  io::make_directory_of(path);
  bool written = false, waiting = false;
  for (;;) {
    const bool stop = stop_requested != 0;
    bool ended = false;
    try {
      const std::vector<report::RunRecord> runs = read_runs(directories);
      ended = std::all_of(runs.begin(), runs.end(), report::has_ended);
      io::replace_text(path, report::page(runs, stop || ended ? 0 : seconds));
      if (!std::exchange(written, true)) {
        fmt::print("wrote {}: open it in a browser; written again every {} s until the run ends or Ctrl-C\n",
                   printable(path), seconds);
        std::fflush(stdout);
      }
    } catch (const ConfigError& error) {  // a run that starts writes its first line later
      if (!stop && !std::exchange(waiting, true)) fmt::print(stderr, "waiting: {}\n", error.what());
    }
    if (stop || ended) return 0;
    for (int tenth = 0; tenth < 10 * seconds && stop_requested == 0; ++tenth)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

void add_report(CLI::App& app, Action& chosen) {
  const auto directories = std::make_shared<std::vector<std::string>>();
  const auto path = std::make_shared<std::string>("report.html");
  CLI::App* command = add_command(app, "report");
  command
      ->add_option("RUN", *directories,
                   "The run.output of a run; several runs are shown side by side, with a table, best loss first")
      ->required();
  command->add_option("-o,--output", *path, "The page to write: one HTML file that needs no network")
      ->capture_default_str();
  const auto seconds = std::make_shared<int>(0);
  command
      ->add_option("--watch", *seconds,
                   "Write the page again every so many seconds until the run ends; it reloads itself")
      ->expected(0, 1)
      ->default_str("10")
      ->check(CLI::Range(1, 86400));
  command->footer(
      "The timeline, and memory over the operations of a step, are those of metrics.trace_steps.\n\n"
      "Examples:\n"
      "  trireme report runs/quickstart\n"
      "  trireme report runs/quickstart runs/book -o compared.html\n"
      "  trireme report runs/quickstart --watch            # a live page");
  command->callback([&chosen, directories, path, seconds] {
    chosen = [directories, path, seconds] {
      return *seconds > 0 ? watch(*directories, *path, *seconds) : write_report(*directories, *path);
    };
  });
}

}  // namespace trireme::cli
