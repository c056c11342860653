// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "trireme/base/units.hpp"

namespace trireme::comm {

/// Bytes and calls of one kind of collective.
struct Traffic {
  Bytes bytes;  ///< sent from this rank by a bandwidth-optimal algorithm
  std::int64_t calls = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

/// By group name, then by operation: {"shard": {"all_gather": ..., "reduce_scatter": ...}, "replicate": {"all_reduce":
/// ...}}.
using TrafficTable = std::map<std::string, std::map<std::string, Traffic, std::less<>>, std::less<>>;

/// Traffic between `earlier` and `later`; operations without a call in between are left out.
[[nodiscard]] TrafficTable difference(const TrafficTable& later, const TrafficTable& earlier);

/// Bytes a bandwidth-optimal all-gather or reduce-scatter sends from one of `ranks`: (ranks - 1) / ranks of the whole.
[[nodiscard]] constexpr Bytes scatter_bytes(Bytes shard, int ranks) { return {shard.value * (ranks - 1)}; }
/// The same for an all-reduce of `elements`, padded to a multiple of `ranks`: twice (ranks - 1) / ranks of the whole.
[[nodiscard]] constexpr Bytes all_reduce_bytes(std::int64_t elements, std::int64_t element_bytes, int ranks) {
  return {2 * ((elements + ranks - 1) / ranks) * element_bytes * (ranks - 1)};
}

/// Adds up the traffic of all groups of a rank. Any thread may add and read.
class Counters {
 public:
  void add(std::string_view group, std::string_view operation, Bytes bytes);
  [[nodiscard]] TrafficTable snapshot() const;

 private:
  mutable std::mutex mutex_;
  TrafficTable table_;
};

}  // namespace trireme::comm
