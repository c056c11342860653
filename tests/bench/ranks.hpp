// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <vector>

#include "trireme/mpi/session.hpp"

/// Benchmarks of several ranks: mpirun -n N --bind-to none build/x_bench
namespace trireme::bench {

/// All ranks; only the first one's output is seen. Collective, the first time.
inline const mpi::Communicator& world() {
  static const mpi::Session session(nullptr, nullptr);
  static const bool quiet = session.world().rank() == 0 || std::freopen("/dev/null", "w", stdout) != nullptr;
  benchmark::DoNotOptimize(quiet);
  return session.world();
}

/// Seconds of the slowest rank. Collective.
inline double timed(const std::function<void()>& call) {
  MPI_Barrier(world().handle());
  const auto began = std::chrono::steady_clock::now();
  call();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, world().handle());
  return seconds;
}

/// The upper median of an even number of values. values: not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline double best(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

}  // namespace trireme::bench
