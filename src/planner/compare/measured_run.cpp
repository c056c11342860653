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

Json parse(std::string_view text) {
  if (io::nests_deep(text)) throw ConfigError("not the metrics or the trace of a run: its JSON nests too deep");
  return Json::parse(text);
}

std::vector<Json> training_rows(std::string_view metrics) {
  std::vector<Json> rows;
  while (!metrics.empty()) {
    const std::size_t end = std::min(metrics.find('\n'), metrics.size());
    if (end > 0) {
      Json row = parse(metrics.substr(0, end));
      if (row.contains("step_seconds")) rows.push_back(std::move(row));
    }
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
  }
  return rows;
}

void read_trace(MeasuredRun& run, std::string_view trace) {
  const Json events = parse(trace).at("traceEvents");
  std::map<int, std::string> lanes;
  std::set<std::int64_t> steps;
  for (const Json& event : events) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name")
      lanes[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
    if (is_op(event)) steps.insert(event.at("args").at("step").get<std::int64_t>());
  }
  for (const Json& event : events) {
    if (!is_op(event)) continue;
    MeasuredOps& ops = run.ops[kind_of_op(event.at("name").get<std::string>())];
    ops.lane = lanes[event.at("tid").get<int>()];
    ops.count += 1.0 / static_cast<double>(steps.size());
    ops.seconds += 1e-6 * event.at("dur").get<double>() / static_cast<double>(steps.size());
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
  try {
    const std::vector<Json> rows = training_rows(metrics);
    if (rows.empty())
      throw ConfigError(fmt::format("{}: metrics.jsonl has no training row; give the directory of a run", name));
    const Json& last = rows.back();
    // Written where it changes.
    const auto traffic =
        std::find_if(rows.rbegin(), rows.rend(), [](const Json& row) { return row.contains("comm_bytes"); });
    MeasuredRun run{.ranks = static_cast<int>(std::lround(last.at("tokens_per_second").get<double>() /
                                                          last.at("tokens_per_second_per_rank").get<double>())),
                    .memory = numbers_by_name(last.at("memory_peak_bytes")),
                    .bytes = numbers_by_name(traffic == rows.rend() ? Json::object() : traffic->at("comm_bytes"))};
    const std::size_t first = rows.size() > 2 * warm_up_rows ? warm_up_rows : rows.size() - 1;
    run.rows = static_cast<int>(rows.size() - first);
    for (const auto& [key, member] : {std::pair{"step_seconds", &MeasuredRun::step_seconds},
                                      {"exposed_comm_seconds", &MeasuredRun::exposed_seconds},
                                      {"data_seconds", &MeasuredRun::data_seconds}}) {
      std::vector<double> values;
      for (std::size_t i = first; i < rows.size(); ++i) values.push_back(rows[i].at(key).get<double>());
      run.*member = middle(std::move(values));
    }
    if (!trace.empty()) read_trace(run, trace);
    return run;
  } catch (const Json::exception& problem) {
    throw ConfigError(fmt::format("{}: not the metrics or the trace of a run: {}", name, problem.what()));
  }
}

}  // namespace trireme::planner
