// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

/// Shared by the readers of a run's metrics and traces.
namespace trireme::planner {

/// The numbers of a row by group and operation, or by space and category.
[[nodiscard]] inline std::map<std::string, std::map<std::string, double>> numbers_by_name(const nlohmann::json& json) {
  std::map<std::string, std::map<std::string, double>> out;
  for (const auto& [outer, inner] : json.items())
    if (inner.is_object())
      for (const auto& [name, value] : inner.items())
        if (value.is_number()) out[outer][name] = value.get<double>();
  return out;
}

/// Whether an event of a trace is an operation of a step; other rows, such as a GPU's kernels, have no step.
[[nodiscard]] inline bool is_op(const nlohmann::json& event) {
  const auto phase = event.find("ph"), args = event.find("args");
  return phase != event.end() && *phase == "X" && args != event.end() && args->contains("step");
}

}  // namespace trireme::planner
