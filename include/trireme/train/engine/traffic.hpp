// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

#include "trireme/comm/counters.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::train {

/// Traffic of each step, although lanes run ahead into the next one: every lane has separate counters, which are
/// read at the moment that lane ends a step.
class StepTraffic {
 public:
  [[nodiscard]] comm::Counters& counters(schedule::Lane lane) { return counters_[static_cast<std::size_t>(lane)]; }

  /// Excludes the traffic so far from later steps; all lanes are idle.
  void rest();
  /// `lane` has ended `step`. Called on the lane's thread.
  void lane_ended(schedule::Lane lane, std::int64_t step);
  /// Counts a copy between device and host on its thread; the table has it under "host".
  void copied(std::string_view copy, Bytes bytes, std::int64_t step);
  /// Traffic of the step on all lanes. All lanes have ended it; called once for each step, in order.
  [[nodiscard]] comm::TrafficTable take(std::int64_t step);

 private:
  using ByLane = std::array<comm::TrafficTable, schedule::lanes>;
  std::array<comm::Counters, schedule::lanes> counters_;
  std::mutex mutex_;
  std::map<std::int64_t, ByLane> ends_;
  std::map<std::int64_t, comm::TrafficTable> copies_;
  ByLane before_;
};

}  // namespace trireme::train
