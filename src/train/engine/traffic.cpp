// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/engine/traffic.hpp"

#include <utility>

namespace trireme::train {

void StepTraffic::rest() {
  const std::scoped_lock lock(mutex_);
  for (std::size_t lane = 0; lane < counters_.size(); ++lane) before_[lane] = counters_[lane].snapshot();
}

void StepTraffic::lane_ended(schedule::Lane lane, std::int64_t step) {
  const auto at = static_cast<std::size_t>(lane);
  const std::scoped_lock lock(mutex_);
  ends_[step][at] = counters_[at].snapshot();
}

void StepTraffic::copied(std::string_view copy, Bytes bytes, std::int64_t step) {
  const std::scoped_lock lock(mutex_);
  comm::Traffic& sum = copies_[step]["host"][std::string(copy)];
  sum.bytes += bytes;
  ++sum.calls;
}

comm::TrafficTable StepTraffic::take(std::int64_t step) {
  const std::scoped_lock lock(mutex_);
  comm::TrafficTable total;
  if (auto copies = copies_.extract(step)) total = std::move(copies.mapped());
  const ByLane ends = ends_.extract(step).mapped();
  for (std::size_t lane = 0; lane < ends.size(); ++lane)
    for (const auto& [group, operations] : comm::difference(ends[lane], before_[lane]))
      for (const auto& [operation, traffic] : operations) {
        comm::Traffic& sum = total[group][operation];
        sum.bytes += traffic.bytes;
        sum.calls += traffic.calls;
      }
  before_ = ends;
  return total;
}

}  // namespace trireme::train
