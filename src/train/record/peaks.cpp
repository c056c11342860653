// SPDX-License-Identifier: Apache-2.0
#include "train/record/peaks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/text_table.hpp"

namespace trireme::train {

void RunPeaks::add(const device::MemoryUse& use) {
  for (std::size_t s = 0; s < spaces_.size(); ++s) {
    device::SpaceUse& all = spaces_[s];
    const device::SpaceUse& step = use.spaces[s];
    for (std::size_t c = 0; c < device::category_count; ++c) {
      if (step.peak.bytes[c] <= all.peak.bytes[c]) continue;
      all.peak.bytes[c] = step.peak.bytes[c];
      all.peak_ops.category[c] = step.peak_ops.category[c];
    }
    if (step.peak_total <= all.peak_total) continue;
    all.peak_total = step.peak_total;
    all.peak_ops.total = step.peak_ops.total;
  }
}

std::string RunPeaks::table(const std::function<std::string(int op)>& op_text) const {
  const auto when = [&](Bytes bytes, int op) {
    return bytes.value == 0 ? std::string() : op == device::no_op ? "all the step" : op_text(op);
  };
  TextTable table({"memory of one rank, highest", "device", "during", "host", "during"});
  const device::SpaceUse& on_device = spaces_[0];
  const device::SpaceUse& on_host = spaces_[1];
  for (const device::Category c : device::all_categories()) {
    if (on_device.peak[c].value == 0 && on_host.peak[c].value == 0) continue;
    table.add({std::string(device::to_text(c)), to_text(on_device.peak[c]),
               when(on_device.peak[c], on_device.peak_ops[c]), to_text(on_host.peak[c]),
               when(on_host.peak[c], on_host.peak_ops[c])});
  }
  table.add({"all at once", to_text(on_device.peak_total), when(on_device.peak_total, on_device.peak_ops.total),
             to_text(on_host.peak_total), when(on_host.peak_total, on_host.peak_ops.total)});
  return table.str();
}

std::string over_budget_warning(Bytes budget, const device::SpaceUse& use) {
  if (use.peak_total <= budget) return {};
  std::vector<device::Category> largest(device::all_categories().begin(), device::all_categories().end());
  std::ranges::stable_sort(largest, std::ranges::greater{}, [&](device::Category c) { return use.at_peak[c]; });
  std::vector<std::string> parts;
  for (const device::Category c : largest)
    if (parts.size() < 3 && use.at_peak[c].value > 0)
      parts.push_back(fmt::format("{} {}", device::to_text(c), to_text(use.at_peak[c])));
  return fmt::format(
      "a step took {}, more than memory.budget = {} ({}). On CPUs the budget bounds what automatic choices plan, "
      "which leaves workspace and communication out; `trireme plan` lists settings that need less.",
      to_text(use.peak_total), to_text(budget), join(parts, ", "));
}

void BudgetWatch::look(const device::SpaceUse& use) {
  const std::string said = budget_ ? over_budget_warning(*budget_, use) : "";
  if (said.empty()) return;
  log::warning(said);
  budget_.reset();
}

}  // namespace trireme::train
