// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/io/json.hpp"
#include "planner/compare/run_json.hpp"
#include "trireme/base/error.hpp"
#include "trireme/planner/compare/compare.hpp"

namespace trireme::planner {
namespace {

using Json = nlohmann::json;

constexpr std::size_t warm_up_rows = 3;

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// Location of a value, for messages: "line 7 of metrics.jsonl".
struct Place {
  std::string_view run, within;

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(fmt::format("{}: not the metrics or the trace of a run: {}: {}", run, within, what));
  }
};

Json parse(std::string_view text, const Place& place) {
  if (io::nests_deep(text)) place.refuse("its JSON nests too deep");
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) place.refuse(fmt::format("no JSON: {}", io::in_quotes(text.substr(0, 40))));
  if (!json.is_object()) place.refuse("expected a JSON object");
  return json;
}

/// The value of a key. Refuses an object without it, or where it is of another type than `expected`.
const Json& value_of(const Json& object, const char* key, const char* expected, bool (Json::*fits)() const noexcept,
                     const Place& place) {
  const auto found = object.find(key);
  if (found == object.end()) place.refuse(fmt::format("\"{}\" is missing; expected {}", key, expected));
  if (!((*found).*fits)()) place.refuse(fmt::format("\"{}\" is {}; expected {}", key, io::shown(*found), expected));
  return *found;
}

double number_of(const Json& object, const char* key, const Place& place) {
  return value_of(object, key, "a number", &Json::is_number, place).get<double>();
}

std::string text_of(const Json& object, const char* key, const Place& place) {
  return value_of(object, key, "a text", &Json::is_string, place).get<std::string>();
}

const Json& object_of(const Json& object, const char* key, const Place& place) {
  return value_of(object, key, "an object", &Json::is_object, place);
}

/// A line of metrics.jsonl with the times of a step.
struct Row {
  Json json;
  std::string within;  ///< "line 7 of metrics.jsonl"
};

std::vector<Row> training_rows(std::string_view metrics, const std::string& name) {
  std::vector<Row> rows;
  for (std::int64_t number = 1; !metrics.empty(); ++number) {
    const std::size_t end = std::min(metrics.find('\n'), metrics.size());
    if (end > 0) {
      std::string within = fmt::format("line {} of metrics.jsonl", number);
      Json row = parse(metrics.substr(0, end), {name, within});
      if (row.contains("step_seconds")) rows.push_back({.json = std::move(row), .within = std::move(within)});
    }
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
  }
  return rows;
}

void read_trace(MeasuredRun& run, std::string_view trace, const std::string& name) {
  const Place whole{name, "the trace"};
  const Json json = parse(trace, whole);
  const Json& events = value_of(json, "traceEvents", "a list", &Json::is_array, whole);
  std::map<int, std::string> lanes;
  std::set<std::int64_t> steps;
  std::vector<std::pair<const Json*, std::string>> ops;  // and which event it is
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    std::string within = fmt::format("event {} of the trace", i + 1);
    const Place place{name, within};
    if (!event.is_object()) place.refuse("expected a JSON object");
    const std::string phase = text_of(event, "ph", place);
    if (phase == "M" && text_of(event, "name", place) == "thread_name")
      lanes[static_cast<int>(number_of(event, "tid", place))] = text_of(object_of(event, "args", place), "name", place);
    if (!is_op(event)) continue;
    steps.insert(static_cast<std::int64_t>(number_of(event["args"], "step", place)));
    ops.emplace_back(&event, std::move(within));
  }
  for (const auto& [event, within] : ops) {
    const Place place{name, within};
    MeasuredOps& measured = run.ops[kind_of_op(text_of(*event, "name", place))];
    measured.lane = lanes[static_cast<int>(number_of(*event, "tid", place))];
    measured.count += 1.0 / static_cast<double>(steps.size());
    measured.seconds += 1e-6 * number_of(*event, "dur", place) / static_cast<double>(steps.size());
  }
}

}  // namespace

std::string kind_of_op(std::string_view op) {
  if (op.find(" ... ") != std::string_view::npos) return "several ops at once";
  const std::size_t verb_end = std::min(op.find(' '), op.size());
  std::string kind(op.substr(0, verb_end));
  if (verb_end == op.size()) return kind;
  std::string_view block = op.substr(verb_end + 1);
  block = block.substr(0, block.find(' '));
  if (block.size() < 2 || block[0] != 'b' || block[1] < '0' || block[1] > '9') return kind + " " + std::string(block);
  const std::size_t digits = block.find_first_not_of("0123456789", 1);
  return kind + " b*" + std::string(digits == std::string_view::npos ? "" : block.substr(digits));
}

MeasuredRun read_measured_run(std::string_view metrics, std::string_view trace, const std::string& name) {
  const std::vector<Row> rows = training_rows(metrics, name);
  if (rows.empty())
    throw ConfigError(fmt::format("{}: metrics.jsonl has no training row; give the directory of a run", name));
  const Row& last = rows.back();
  const Place place{name, last.within};
  // Written where it changes.
  const auto traffic =
      std::find_if(rows.rbegin(), rows.rend(), [](const Row& row) { return row.json.contains("comm_bytes"); });
  const double of_each_rank = number_of(last.json, "tokens_per_second_per_rank", place);
  if (!(of_each_rank > 0))
    place.refuse(fmt::format("\"tokens_per_second_per_rank\" is {}; expected more", of_each_rank));
  MeasuredRun run{
      .ranks = static_cast<int>(std::lround(number_of(last.json, "tokens_per_second", place) / of_each_rank)),
      .memory = numbers_by_name(object_of(last.json, "memory_peak_bytes", place)),
      .bytes = numbers_by_name(traffic == rows.rend() ? Json::object() : traffic->json["comm_bytes"])};
  const std::size_t first = rows.size() > 2 * warm_up_rows ? warm_up_rows : rows.size() - 1;
  run.rows = static_cast<int>(rows.size() - first);
  for (const auto& [key, member] : {std::pair{"step_seconds", &MeasuredRun::step_seconds},
                                    {"exposed_comm_seconds", &MeasuredRun::exposed_seconds},
                                    {"data_seconds", &MeasuredRun::data_seconds}}) {
    std::vector<double> values;
    for (std::size_t i = first; i < rows.size(); ++i)
      values.push_back(number_of(rows[i].json, key, {name, rows[i].within}));
    run.*member = middle(std::move(values));
  }
  if (!trace.empty()) read_trace(run, trace, name);
  return run;
}

}  // namespace trireme::planner
