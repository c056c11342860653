// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/running_time.hpp"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

/// Tolerated delay of a tick on a busy machine; a longer one is a stop.
constexpr int late_periods = 4;
constexpr Clock::duration late = std::chrono::milliseconds(100);

/// Older ones are dropped; no deadline spans that many stops.
constexpr std::size_t most_stops = 4096;

struct Stop {
  Clock::time_point begin, end;
};

struct Running {
  std::mutex mutex;
  bool ticks = false;
  Clock::time_point last;
  Clock::duration period{};
  std::vector<Stop> stops;

  /// Whether nothing has run since the last tick, and when that began.
  [[nodiscard]] bool stopped_at(Clock::time_point now) const {
    return ticks && now - last > late_periods * period + late;
  }
  [[nodiscard]] Stop stop_until(Clock::time_point now) const { return {.begin = last + period, .end = now}; }
};

Running& running() {
  static auto* only = new Running;  // never destroyed: threads use it until the process ends
  return *only;
}

}  // namespace

double running_seconds(Clock::time_point since) {
  Running& state = running();
  const std::scoped_lock lock(state.mutex);
  const Clock::time_point now = Clock::now();
  Clock::duration stopped{};
  const auto leave_out = [&](const Stop& stop) {
    if (stop.end > since) stopped += stop.end - std::max(stop.begin, since);
  };
  for (auto stop = state.stops.rbegin(); stop != state.stops.rend() && stop->end > since; ++stop) leave_out(*stop);
  if (state.stopped_at(now)) leave_out(state.stop_until(now));
  return std::chrono::duration<double>(now - since - stopped).count();
}

RunningClock::RunningClock() {
  Running& state = running();
  const std::scoped_lock lock(state.mutex);
  state.ticks = false;
  state.stops.clear();
}

RunningClock::~RunningClock() {
  Running& state = running();
  const std::scoped_lock lock(state.mutex);
  state.ticks = false;
}

void RunningClock::tick(Clock::duration period) {
  Running& state = running();
  const std::scoped_lock lock(state.mutex);
  const Clock::time_point now = Clock::now();
  if (state.stopped_at(now)) {
    if (state.stops.size() == most_stops) state.stops.erase(state.stops.begin(), state.stops.begin() + most_stops / 2);
    state.stops.push_back(state.stop_until(now));
  }
  state.ticks = true;
  state.last = now;
  state.period = period;
}

}  // namespace trireme
