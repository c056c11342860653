// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

/// What the readers of a run's metrics and traces share.
namespace trireme::planner {

/// The numbers of a row by group and operation, or by space and category.
[[nodiscard]] inline std::map<std::string, std::map<std::string, double>> numbers_by_name(const nlohmann::json& json) {
  std::map<std::string, std::map<std::string, double>> out;
  for (const auto& [outer, inner] : json.items())
    if (inner.is_object())
      for (const auto& [name, value] : inner.items()) out[outer][name] = value.get<double>();
  return out;
}

/// Whether an event of a trace is an operation of a step; other rows, such as a GPU's kernels, have no step.
[[nodiscard]] inline bool is_op(const nlohmann::json& event) {
  return event.at("ph") == "X" && event.contains("args") && event.at("args").contains("step");
}

}  // namespace trireme::planner
