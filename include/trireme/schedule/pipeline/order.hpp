// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "trireme/schedule/op.hpp"
#include "trireme/schedule/pipeline/table.hpp"

/// One global order of all computing and sending of a pipeline, and each rank's list as its projection.
namespace trireme::schedule {

/// Costs of the parts of one chunk: integers, equal on every rank, each at least 1. B costs input + weight.
struct ChunkCost {
  std::int64_t forward = 1, input = 1, weight = 1;
  [[nodiscard]] std::int64_t of(ActionPart part) const;
};
using ActionCosts = std::vector<ChunkCost>;  ///< by chunk

/// When one action ran, on a clock that is zero at the step's begin.
struct ActionTime {
  Action action;
  std::int64_t begin = 0, end = 0;
};
/// A table simulated with those costs: every action starts when the previous one on its rank has ended and its inputs
/// have been computed; transfers take no time. Throws BugError with each rank's next action if the table hangs.
struct TableTimes {
  std::vector<std::vector<ActionTime>> ranks;
  std::int64_t end = 0;  ///< of the last action of all: `clip_norm` is a barrier
  /// Idle fraction of the step's rank-time: the bubble.
  [[nodiscard]] double bubble() const;
  [[nodiscard]] std::int64_t idle(int rank) const;
};
[[nodiscard]] TableTimes run_table(const Pipeline& pipeline, const ActionTable& table, const ActionCosts& costs);

/// The idle time of each rank with F = I = W = 1 and nothing spent on transfers, the barrier at the norm included:
/// 3 (p - 1) for GPipe and 1F1B (Narayanan et al. 2021: (p - 1) (F + B)) and interleaved (the same, of chunks 1/V as
/// long); p - 1 for ZB-H1 (Qi et al. 2023, table 2: (p - 1) (F + I - W)) and for ZB-V and DualPipeV, whose windows have
/// no idle time but begin up to p - 1 later than the first rank's. With fewer microbatches than `ranks` (ZB-V: 2 ranks
/// - 1) the zero-bubble schedules idle longer: `unit_bubble` is then nothing.
[[nodiscard]] std::optional<double> unit_bubble(const Pipeline& pipeline);

/// The stream between two chunks on different ranks: forward, or its gradient backward.
struct Transfer {
  Edge edge;  ///< between chunks e and e + 1
  Microbatch microbatch;
  Phase phase = Phase::forward;
  int from = 0, to = 0;
  friend auto operator<=>(const Transfer&, const Transfer&) = default;
};

/// The list of one rank: its actions, and the transfers that it is one end of.
using RankOrder = std::vector<std::variant<Action, Transfer>>;

/// The lists of all ranks: the table is simulated once; actions are sorted by their start, transfers by the end of the
/// action that produces them; at equal times transfers first, then by rank. A transfer has the same place in both
/// lists, so that no list waits for a later entry of another one, on any lanes.
[[nodiscard]] std::vector<RankOrder> pipeline_order(const Pipeline& pipeline, const ActionCosts& costs);

/// The forwards of one microbatch, chunk after chunk, with their transfers.
[[nodiscard]] std::vector<RankOrder> forward_pipeline_order(const Pipeline& pipeline);

}  // namespace trireme::schedule
