// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>

/// Timing that a busy machine disturbs little: CPU time of the process, the best of a benchmark's iterations.
/// Run with OMP_NUM_THREADS=1.
namespace trireme::bench {

/// CPU seconds of one call.
inline double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

/// Times `ours`, and `other` in turns with it; reports work / best time as `rate_name`, `other`'s likewise, and the
/// ratio of the times.
inline void compare(benchmark::State& state, double work, const char* rate_name, const std::function<void()>& ours,
                    const std::function<void()>& other) {
  double our_best = std::numeric_limits<double>::infinity(), other_best = our_best;
  ours();
  other();
  for (auto _ : state) {
    other_best = std::min(other_best, seconds(other));
    const double time = seconds(ours);
    our_best = std::min(our_best, time);
    state.SetIterationTime(time);
  }
  state.counters[rate_name] = work / our_best * 1e-9;
  state.counters["other"] = work / other_best * 1e-9;
  state.counters["ratio"] = other_best / our_best;
}

/// Times `ours` alone.
inline void measure(benchmark::State& state, double work, const char* rate_name, const std::function<void()>& ours) {
  double best = std::numeric_limits<double>::infinity();
  ours();
  for (auto _ : state) {
    const double time = seconds(ours);
    best = std::min(best, time);
    state.SetIterationTime(time);
  }
  state.counters[rate_name] = work / best * 1e-9;
}

}  // namespace trireme::bench
