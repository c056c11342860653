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
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/report/run_record.hpp"

namespace trireme::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
constexpr int most_traces = 8;  // more ranks are not shown

/// Location of a value, for messages: "out/metrics.jsonl: not the metrics of a run: line 7: ...".
struct Place {
  std::string_view file, kind;
  std::string within{};  ///< "line 7"

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(
        fmt::format("{}: not the {} of a run: {}{}{}", file, kind, within, within.empty() ? "" : ": ", what));
  }
};

Json parse(std::string_view text, const Place& place) {
  if (io::nests_deep(text))
    throw ConfigError(fmt::format("{}: not the file of a run: its JSON nests too deep", place.file));
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded())
    place.refuse(
        fmt::format("no JSON: {}; a write was cut off, or something else wrote here: remove {} or restore the file",
                    io::in_quotes(text.substr(0, 40)), place.kind == "metrics" ? "the line" : "it"));
  if (!json.is_object()) place.refuse("expected a JSON object");
  return json;
}

/// The value of a key. Refuses an object without it, or if it is of another type than `expected`.
const Json& value_of(const Json& object, const char* key, const char* expected, bool (*fits)(const Json&),
                     const Place& place) {
  if (!object.is_object() || !object.contains(key))
    place.refuse(fmt::format("\"{}\" is missing; expected {}", key, expected));
  const Json& value = object[key];
  if (!fits(value)) place.refuse(fmt::format("\"{}\" is {}; expected {}", key, io::shown(value), expected));
  return value;
}

double number_of(const Json& object, const char* key, const Place& place) {
  return value_of(
             object, key, "a number", [](const Json& value) { return value.is_number(); }, place)
      .get<double>();
}

std::string text_of(const Json& object, const char* key, const Place& place) {
  return value_of(
             object, key, "a text", [](const Json& value) { return value.is_string(); }, place)
      .get<std::string>();
}

const Json& list_of(const Json& object, const char* key, const Place& place) {
  return value_of(
      object, key, "a list", [](const Json& value) { return value.is_array(); }, place);
}

const Json& object_of(const Json& object, const char* key, const Place& place) {
  return value_of(
      object, key, "an object", [](const Json& value) { return value.is_object(); }, place);
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
  std::vector<double> first_rows;  // of a start; they have values that seldom change
  std::int64_t steps = 0;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.size() == text.size()) break;  // without an end: it is being written
    text.remove_prefix(line.size() + 1);
    if (line.empty()) continue;
    const Place place{file, "metrics", fmt::format("line {}", number)};
    const Json row = parse(line, place);
    const double step = number_of(row, "step", place);
    if (!row.contains("loss")) {
      add_numbers(run, step, "", row);
      continue;
    }
    ++steps;
    Json numbers = row;
    for (const char* key : {"comm_bytes", "comm_calls", "memory_peak_op"}) numbers.erase(key);
    add_numbers(run, step, "", numbers);
    const auto found = row.find("skipped"), targets = row.find("target_tokens");
    const bool skipped = found != row.end() && *found == true;
    const bool without_targets = skipped && targets != row.end() && *targets == 0;
    run.without_targets += without_targets ? 1 : 0;
    run.not_finite += row["loss"].is_null() && !without_targets ? 1 : 0;
    const bool spike = skipped && row["loss"].is_number() && row.contains("grad_norm") && row["grad_norm"].is_number();
    run.spikes += spike ? 1 : 0;
    run.skipped += skipped && !without_targets && !spike ? 1 : 0;
    if (skipped) run.skipped_at.push_back(step);
    for (const auto& [key, text] : {std::pair{"device", &run.device}, {"version", &run.version}})
      if (row.contains(key)) *text = text_of(row, key, place);
    if (row.contains("flop_rule")) first_rows.push_back(step);
    if (const auto named = row.find("stragglers"); named != row.end() && named->is_string())
      run.stragglers[named->get<std::string>()].push_back(step);
    for (const char* key : {"comm_bytes", "comm_calls"}) {
      if (!row.contains(key)) continue;
      const Json& by_group = object_of(row, key, place);
      for (const auto& group : by_group.items())
        for (const auto& operation : object_of(by_group, group.key().c_str(), place).items())
          (void)number_of(group.value(), operation.key().c_str(), place);
      (std::string_view(key) == "comm_bytes" ? run.bytes : run.calls) = planner::numbers_by_name(row[key]);
    }
  }
  if (steps == 0)
    throw ConfigError(fmt::format("{}: holds no step; give the run.output of a run that has begun", file));
  // Rows of earlier versions have all keys: they do not show starts.
  if (first_rows.size() > 1 && static_cast<std::int64_t>(first_rows.size()) < steps)
    run.starts.assign(first_rows.begin() + 1, first_rows.end());
}

void read_step_times(RunRecord& run, std::string_view text, const std::string& file) {
  const Place place{file, "step times"};
  const Json times = parse(text, place);
  for (const Json& rank : list_of(times, "ranks", place))
    run.ranks.push_back({.name = text_of(rank, "name", place),
                         .median_seconds = number_of(rank, "median_seconds", place),
                         .p95_seconds = number_of(rank, "p95_seconds", place),
                         .max_seconds = number_of(rank, "max_seconds", place)});
}

void read_trace(RunRecord& run, std::string_view text, const std::string& file, bool first) {
  const Json trace = parse(text, {file, "trace"});
  const Json& events = list_of(trace, "traceEvents", {file, "trace"});
  const auto place_of = [&](std::size_t event) {
    return Place{file, "trace", fmt::format("event {} of traceEvents", event)};
  };
  std::map<int, std::string> lanes;
  std::string process = file;
  std::int64_t step = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    const Place place = place_of(i);
    const std::string kind = text_of(event, "ph", place), name = text_of(event, "name", place);
    if (kind == "M" && name == "thread_name")
      lanes[static_cast<int>(number_of(event, "tid", place))] = text_of(object_of(event, "args", place), "name", place);
    if (kind == "M" && name == "process_name") process = text_of(object_of(event, "args", place), "name", place);
    if (planner::is_op(event))
      step = std::max(step, static_cast<std::int64_t>(number_of(object_of(event, "args", place), "step", place)));
  }
  if (step == 0) return;
  if (!run.trace) run.trace = TracedStep{.step = step, .spans = {}, .memory = {}};
  double begin = std::numeric_limits<double>::infinity(), end = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    if (!planner::is_op(event) || event["args"]["step"] != run.trace->step) continue;
    const Place place = place_of(i);
    const double at = 1e-6 * number_of(event, "ts", place), until = at + 1e-6 * number_of(event, "dur", place);
    run.trace->spans[process].push_back(
        {lanes[static_cast<int>(number_of(event, "tid", place))], text_of(event, "name", place), at, until});
    begin = std::min(begin, at);
    end = std::max(end, until);
  }
  if (!first) return;
  // A counter is written at the first op of a step and where it changes, and holds until the next one.
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    const double at = event["ph"] == "C" ? 1e-6 * number_of(event, "ts", place_of(i)) : -1;
    if (at < begin || at > end || event["name"] != "device memory") continue;
    const Json& counts = object_of(event, "args", place_of(i));
    for (const auto& [category, bytes] : counts.items()) {
      Points& points = run.trace->memory[category];
      if (!points.empty()) points.push_back({at, points.back().y});
      points.push_back({at, number_of(counts, category.c_str(), place_of(i))});
    }
  }
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
  for (const char* name : {"metrics.jsonl", "run.effective.toml", "run.toml", "step_times.json", "goodput.jsonl"})
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
  run.goodput = read_goodput(directory);
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
