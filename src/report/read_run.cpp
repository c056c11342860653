// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/io/json.hpp"
#include "planner/compare/run_json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/config/load.hpp"
#include "trireme/report/run_record.hpp"

namespace trireme::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
constexpr int most_traces = 8;  // more ranks are not shown

Json parse(std::string_view text, const std::string& file) {
  if (io::nests_deep(text)) throw ConfigError(fmt::format("{}: not the file of a run: its JSON nests too deep", file));
  return Json::parse(text);
}

/// The numbers of `json` by their path, such as "memory_peak_bytes/device/total".
void add_numbers(RunRecord& run, double step, const std::string& path, const Json& json) {
  if (json.is_object()) {
    for (const auto& [key, inner] : json.items()) add_numbers(run, step, path.empty() ? key : path + "/" + key, inner);
  } else if (json.is_number() && std::isfinite(json.get<double>())) {
    run.series[path].push_back({step, json.get<double>()});
  }
}

std::string text_of_file(const fs::path& path) {
  return io::status_of(path.string()).kind == io::PathKind::file ? io::read_text(path.string(), most_bytes) : "";
}

/// Runs `read`; what it finds wrong is a mistake in `file`.
template <class Read>
void reading(const std::string& file, const char* kind, Read&& read) {
  try {
    read();
  } catch (const Json::exception& problem) {
    throw ConfigError(fmt::format("{}: not the {} of a run: {}", file, kind, problem.what()));
  }
}

std::vector<std::string> names_in(const fs::path& directory, std::string_view begin, std::string_view end) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::path& path : io::entries_of(directory, none)) {
    const std::string name = path.filename().string();
    if (name.starts_with(begin) && name.ends_with(end)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

void read_metrics(RunRecord& run, std::string_view text, const std::string& file) {
  std::vector<double> first_rows;  // of a start, which write what seldom changes
  std::int64_t steps = 0;
  reading(file, "metrics", [&] {
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      if (line.size() == text.size()) break;  // without an end: it is being written
      text.remove_prefix(line.size() + 1);
      if (line.empty()) continue;
      const Json row = parse(line, file);
      const double step = row.at("step").get<double>();
      if (!row.contains("loss")) {
        add_numbers(run, step, "", row);
        continue;
      }
      ++steps;
      Json numbers = row;
      for (const char* key : {"comm_bytes", "comm_calls", "memory_peak_op"}) numbers.erase(key);
      add_numbers(run, step, "", numbers);
      const bool skipped = row.value("skipped", false);
      const bool without_targets = skipped && row.value("target_tokens", std::int64_t{1}) == 0;
      run.without_targets += without_targets ? 1 : 0;
      run.not_finite += row["loss"].is_null() && !without_targets ? 1 : 0;
      run.skipped += skipped && !without_targets ? 1 : 0;
      if (row.contains("flop_rule")) first_rows.push_back(step);
      if (row.contains("comm_bytes")) run.bytes = planner::numbers_by_name(row["comm_bytes"]);
      if (row.contains("comm_calls")) run.calls = planner::numbers_by_name(row["comm_calls"]);
    }
  });
  if (steps == 0)
    throw ConfigError(fmt::format("{}: holds no step; give the run.output of a run that has begun", file));
  // Rows of earlier versions have all keys: they do not show starts.
  if (first_rows.size() > 1 && static_cast<std::int64_t>(first_rows.size()) < steps)
    run.starts.assign(first_rows.begin() + 1, first_rows.end());
}

void read_step_times(RunRecord& run, std::string_view text, const std::string& file) {
  reading(file, "step times", [&] {
    const Json times = parse(text, file);
    for (const Json& rank : times.at("ranks"))
      run.ranks.push_back({.name = rank.at("name").get<std::string>(),
                           .median_seconds = rank.at("median_seconds").get<double>(),
                           .p95_seconds = rank.at("p95_seconds").get<double>(),
                           .max_seconds = rank.at("max_seconds").get<double>()});
  });
}

void read_trace(RunRecord& run, std::string_view text, const std::string& file, bool first) {
  reading(file, "trace", [&] {
    const Json trace = parse(text, file);
    const Json& events = trace.at("traceEvents");
    std::map<int, std::string> lanes;
    std::string process = file;
    std::int64_t step = 0;
    for (const Json& event : events) {
      const std::string kind = event.at("ph"), name = event.at("name");
      if (kind == "M" && name == "thread_name") lanes[event.at("tid")] = event.at("args").at("name");
      if (kind == "M" && name == "process_name") process = event.at("args").at("name");
      if (planner::is_op(event)) step = std::max(step, event.at("args").at("step").get<std::int64_t>());
    }
    if (step == 0) return;
    if (!run.trace) run.trace = TracedStep{.step = step, .spans = {}, .memory = {}};
    double begin = std::numeric_limits<double>::infinity(), end = 0;
    for (const Json& event : events) {
      if (!planner::is_op(event) || event.at("args").at("step") != run.trace->step) continue;
      const double at = 1e-6 * event.at("ts").get<double>(), until = at + 1e-6 * event.at("dur").get<double>();
      run.trace->spans[process].push_back({lanes[event.at("tid")], event.at("name"), at, until});
      begin = std::min(begin, at);
      end = std::max(end, until);
    }
    if (!first) return;
    for (const Json& event : events) {
      const double at = event.at("ph") == "C" ? 1e-6 * event.at("ts").get<double>() : -1;
      if (at < begin || at > end || event.at("name") != "device memory") continue;
      for (const auto& [category, bytes] : event.at("args").items())
        run.trace->memory[category].push_back({at, bytes.get<double>()});
    }
  });
}

/// The directories in `path` that hold a run, by name.
std::vector<std::string> runs_in(const fs::path& path) {
  std::vector<std::string> runs;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (io::status_of((entry->path() / "metrics.jsonl").string()).kind == io::PathKind::file)
      runs.push_back(entry->path().string());
  std::ranges::sort(runs);
  return runs;
}

std::vector<std::string> files_of_run(const std::string& directory) {
  std::vector<std::string> files;
  for (const char* name : {"metrics.jsonl", "run.effective.toml", "run.toml", "step_times.json"})
    files.push_back((fs::path(directory) / name).string());
  for (int rank = 0; rank < most_traces; ++rank)
    files.push_back((fs::path(directory) / fmt::format("trace-rank{}.json", rank)).string());
  return files;
}

RunRecord read_run(const std::string& directory) {
  if (io::status_of(directory).kind == io::PathKind::file)
    throw ConfigError(
        fmt::format("{}: is a file; give the directory of the run that wrote it, such as {}", directory,
                    fs::path(directory).has_parent_path() ? fs::path(directory).parent_path().string() : "."));
  const fs::path path(directory);
  RunRecord run;
  run.name = fs::absolute(path / "").lexically_normal().parent_path().filename().string();
  const std::string metrics = (path / "metrics.jsonl").string();
  if (io::status_of(metrics).kind != io::PathKind::file) {
    const std::vector<std::string> runs = runs_in(path);
    throw ConfigError(fmt::format("{}: holds no metrics.jsonl; give the run.output of a run{}", directory,
                                  runs.empty() ? "" : ", such as " + runs.front()));
  }
  read_metrics(run, text_of_file(metrics), metrics);

  for (const char* name : {"run.effective.toml", "run.toml"}) {
    const std::string text = text_of_file(path / name);
    if (text.empty() || run.config) continue;
    try {
      run.config = config::parse_run_file(text, name);
    } catch (const ConfigError&) {  // of another version
    }
  }
  if (const std::string text = text_of_file(path / "step_times.json"); !text.empty())
    read_step_times(run, text, (path / "step_times.json").string());
  for (int rank = 0; rank < most_traces; ++rank) {
    const std::string file = (path / fmt::format("trace-rank{}.json", rank)).string();
    if (const std::string text = text_of_file(file); !text.empty()) read_trace(run, text, file, rank == 0);
  }
  run.checkpoints = names_in(path / "checkpoints", "step-", "");
  if (run.config && run.checkpoints.empty()) run.checkpoints = names_in(run.config->checkpoint.directory, "step-", "");
  run.hang_reports = names_in(path, "hang-rank", ".json");
  if (!run.trace) return run;
  // Times count from the step's first operation on any rank.
  double begin = std::numeric_limits<double>::infinity();
  for (const auto& [process, spans] : run.trace->spans)
    for (const Span& span : spans) begin = std::min(begin, span.begin);
  for (auto& [process, spans] : run.trace->spans)
    for (Span& span : spans) {
      span.begin -= begin;
      span.end -= begin;
    }
  for (auto& [category, points] : run.trace->memory)
    for (Point& point : points) point.x -= begin;
  return run;
}

}  // namespace trireme::report
