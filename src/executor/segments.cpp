// SPDX-License-Identifier: Apache-2.0
#include "executor/segments.hpp"

#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

using schedule::Lane;

/// Needs between lanes that are not implied by earlier ones: for each op and lane only the last need, and only if no
/// earlier op of the same lane has waited for that op or a later one.
struct Meetings {
  std::vector<bool> waits, is_waited_for;  ///< by op
};

Meetings meetings(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs) {
  const auto ops = static_cast<int>(schedule.ops.size());
  std::vector<Lane> lane;
  for (const schedule::Op& op : schedule.ops) lane.push_back(schedule::lane_of(op));
  std::vector<std::vector<schedule::Need>> into(schedule.ops.size());
  for (const schedule::Need& need : needs) into[static_cast<std::size_t>(need.to)].push_back(need);
  const auto place = [&](const schedule::Need& need) { return need.from - need.distance * ops; };

  Meetings found{std::vector<bool>(schedule.ops.size()), std::vector<bool>(schedule.ops.size())};
  std::map<std::pair<Lane, Lane>, int> known;  // by waiting lane and other lane: how far it has waited for that
  for (int op = 0; op < ops; ++op) {
    const auto to = static_cast<std::size_t>(op);
    std::map<Lane, schedule::Need> last;
    for (const schedule::Need& need : into[to]) {
      const Lane other = lane[static_cast<std::size_t>(need.from)];
      if (other == lane[to]) continue;
      const auto [at, added] = last.try_emplace(other, need);
      if (!added && place(need) > place(at->second)) at->second = need;
    }
    for (const auto& [other, need] : last) {
      const auto [at, added] = known.try_emplace({lane[to], other}, place(need));
      if (!added && place(need) <= at->second) continue;
      at->second = place(need);
      found.waits[to] = true;
      found.is_waited_for[static_cast<std::size_t>(need.from)] = true;
    }
  }
  return found;
}

}  // namespace

std::vector<std::vector<int>> segments(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs) {
  const auto [waits, is_waited_for] = meetings(schedule, needs);
  std::vector<std::vector<int>> found;
  std::optional<Microbatch> of;  // the microbatch of the last one
  bool open = false;             // it may go on
  for (int op = 0; op < static_cast<int>(schedule.ops.size()); ++op) {
    const auto index = static_cast<std::size_t>(op);
    if (schedule::lane_of(schedule.ops[index]) != Lane::compute) continue;
    if (std::holds_alternative<schedule::Unshard>(schedule.ops[index])) continue;  // in place: launches nothing
    const std::optional<Microbatch> microbatch = schedule::computes(schedule.ops[index]);
    const bool gives_up = std::holds_alternative<schedule::Reshard>(schedule.ops[index]);
    if (microbatch && (!open || waits[index] || microbatch != of))
      found.push_back({op});
    else if (open && !waits[index] && (microbatch || gives_up))
      found.back().push_back(op);
    else {
      open = false;
      continue;
    }
    if (microbatch) of = microbatch;
    open = !is_waited_for[index];
  }
  return found;
}

}  // namespace trireme::executor
