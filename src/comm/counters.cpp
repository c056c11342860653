// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/counters.hpp"

namespace trireme::comm {

TrafficTable difference(const TrafficTable& later, const TrafficTable& earlier) {
  TrafficTable delta;
  for (const auto& [group, operations] : later) {
    for (const auto& [operation, traffic] : operations) {
      Traffic before;
      if (const auto g = earlier.find(group); g != earlier.end())
        if (const auto o = g->second.find(operation); o != g->second.end()) before = o->second;
      if (traffic.calls > before.calls)
        delta[group][operation] = {.bytes = traffic.bytes - before.bytes, .calls = traffic.calls - before.calls};
    }
  }
  return delta;
}

void Counters::add(std::string_view group, std::string_view operation, Bytes bytes) {
  const std::scoped_lock lock(mutex_);
  auto g = table_.find(group);
  if (g == table_.end()) g = table_.try_emplace(std::string(group)).first;
  auto o = g->second.find(operation);
  if (o == g->second.end()) o = g->second.try_emplace(std::string(operation)).first;
  o->second.bytes += bytes;
  ++o->second.calls;
}

TrafficTable Counters::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return table_;
}

}  // namespace trireme::comm
