// SPDX-License-Identifier: Apache-2.0
// The predicted timeline in the form of a measured one (train/trace.cpp).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {

std::string predicted_trace(const PredictedStep& step) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 0}, {"args", {{"name", "predicted rank 0"}}}});
  for (const schedule::Lane lane : schedule::all_lanes) {
    const bool used = std::any_of(step.schedule.ops.begin(), step.schedule.ops.end(),
                                  [&](const schedule::Op& op) { return schedule::lane_of(op) == lane; });
    if (!used) continue;
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 0},
                      {"tid", static_cast<int>(lane)},
                      {"args", {{"name", schedule::to_text(lane)}}}});
  }
  double first = 0;
  for (const Interval& interval : step.timeline.ops) first = std::min(first, interval.begin);
  for (std::size_t i = 0; i < step.schedule.ops.size(); ++i) {
    const Interval& interval = step.timeline.ops[i];
    Json arguments{{"step", 1}, {"op", i}, {"alone_us", step.costs[i].seconds * 1e6}, {"bytes", step.costs[i].bytes}};
    for (const Term& term : step.terms[i]) arguments[term.name] = term.formula;
    if (interval.cause >= 0)
      arguments["waited for"] =
          schedule::print(step.schedule.ops[static_cast<std::size_t>(interval.cause)], *step.model);
    events.push_back({{"name", schedule::print(step.schedule.ops[i], *step.model)},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", static_cast<int>(schedule::lane_of(step.schedule.ops[i]))},
                      {"ts", (interval.begin - first) * 1e6},
                      {"dur", (interval.end - interval.begin) * 1e6},
                      {"args", std::move(arguments)}});
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace trireme::planner
