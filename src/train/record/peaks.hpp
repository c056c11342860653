// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "trireme/device/memory.hpp"

namespace trireme::train {

/// The highest that every category of memory was in any step of a run, and in which op.
class RunPeaks {
 public:
  /// Takes in the peaks of one step.
  void add(const device::MemoryUse& use);
  /// A table: category, bytes on the device and the op in which they were highest, and the same for the host; then the
  /// totals. op_text: an op of the schedule in words.
  [[nodiscard]] std::string table(const std::function<std::string(int op)>& op_text) const;

 private:
  std::array<device::SpaceUse, device::space_count> spaces_;
};

/// That a step took more of the memory where it computes than `memory.budget`, and of which categories; empty if it
/// did not. use: of that step.
[[nodiscard]] std::string over_budget_warning(Bytes budget, const device::SpaceUse& use);

/// Warns once in a run that a step was over the budget: on CPUs it bounds planned bytes, not allocations.
class BudgetWatch {
 public:
  explicit BudgetWatch(std::optional<Bytes> budget) : budget_(budget) {}
  void look(const device::SpaceUse& use);

 private:
  std::optional<Bytes> budget_;  ///< nothing: none, or reported
};

}  // namespace trireme::train
