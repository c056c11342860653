// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "trireme/planner/time/machine.hpp"

namespace trireme::planner {

/// A number of a machine file: one table for reading, checking and printing.
struct MachineKey {
  std::string_view section, key;
  double scale;  ///< from the key's unit to the member's
  double least, most;
  bool required;
  std::function<double&(Machine&)> member;
  std::string_view meaning;
};
[[nodiscard]] std::span<const MachineKey> machine_keys();

/// Throws ConfigError if a number that a machine file must have above 0, or the rate of products, is not finite or
/// not above 0; a parsed machine has none, one that is made otherwise may.
void expect_rates(const Machine& machine);

}  // namespace trireme::planner
