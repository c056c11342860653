// SPDX-License-Identifier: Apache-2.0
#include "cli/plan_search.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/plan_time.hpp"
#include "cli/submit_script.hpp"
#include "trireme/base/crc32.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/planner/search/search.hpp"

namespace trireme::cli {
namespace {

/// One line that is written over; nothing if standard error is not a terminal.
class SearchLine {
 public:
  SearchLine() = default;
  SearchLine(const SearchLine&) = delete;
  SearchLine& operator=(const SearchLine&) = delete;
  ~SearchLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  void show(const planner::SearchProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    shown_ = true;
    fmt::print(stderr, "\r\033[Ksearch: {} of {} candidates, {} simulated, best {} tokens/s", progress.done,
               progress.candidates, progress.simulated, to_short_text(progress.tokens_per_second));
    (void)std::fflush(stderr);
  }

 private:
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

planner::SearchResult searched(const config::RunConfig& config, int ranks, const planner::Machine& machine) {
  SearchLine line;
  return planner::search(config, ranks, machine,
                         {.keep = 10, .progress = [&](const auto& progress) { line.show(progress); }});
}

/// The file that a search writes: the checksum shows whether it was edited since.
std::string marked(const std::string& run_file) {
  return fmt::format("# Written by `trireme plan --search`, which replaces this file unless it was edited ({:08x})\n{}",
                     crc32c(run_file), run_file);
}

}  // namespace

std::string search_output(const std::string& run_file, const PlanSearch& arguments) {
  return arguments.output.empty() ? std::filesystem::path(run_file).stem().string() + "-best.toml" : arguments.output;
}

void check_search_output(const std::string& path) {
  constexpr std::int64_t longest = 1 << 20;  // of a run file
  const io::PathStatus found = io::status_of(path);
  if (found.kind != io::PathKind::file) return;
  const std::string text = found.bytes > longest ? "" : io::read_text(path, longest);
  if (text != marked(text.substr(std::min(text.find('\n') + 1, text.size()))))
    throw ConfigError(fmt::format(
        "{} exists and is left as it is: no search wrote it, or it was edited since; remove it, or write another file "
        "with -o",
        path));
}

void write_search_output(const std::string& path, const std::string& run_file) {
  write_plan_file(path, marked(run_file));
}

void add_plan_search(CLI::App& command, PlanSearch& arguments) {
  CLI::Option* search = command.add_flag(
      "--search", arguments.asked,
      "Try meshes, microbatches, sync policies, recompute and offload on --machine; print the ten fastest that fit "
      "memory.budget, or 90% of the GPU's memory, and write the fastest as a run file");
  command
      .add_option("-o,--output", arguments.output, "With --search: the run file to write (default: RUN-best.toml here)")
      ->needs(search);
}

void plan_search(const config::RunConfig& config, int ranks, const std::string& machine, const std::string& run_file,
                 const PlanSearch& arguments) {
  const planner::Machine on = machine_for_plan(machine);
  const std::string path = search_output(run_file, arguments);
  check_search_output(path);
  const planner::SearchResult result = searched(config, ranks, on);
  fmt::print("{}", planner::to_text(result));
  if (result.best.empty())
    throw ConfigError(fmt::format("plan --search: {} is not written: {}", path, planner::nothing_fits_text(result)));
  write_search_output(path, config::print_run_file(result.best.front().config));
  fmt::print("written: {}\nstart it: {}\n", path, start_command(path, ranks, on));
}

}  // namespace trireme::cli
