// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>

#include "trireme/base/ceil_div.hpp"

namespace trireme::kernels {

/// Calls body(i) for i in [0, n) on the host's team of threads. Which thread runs which i must not matter to the
/// result.
template <class Body>
void parallel(std::int64_t n, const Body& body) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(Policy(0, n), body);
}

/// Calls body(begin, end) for consecutive chunks of `chunk` items of [0, n): chunks do not depend on the number of
/// threads.
template <class Body>
void parallel_chunks(std::int64_t n, std::int64_t chunk, const Body& body) {
  parallel(ceil_div(n, chunk), [&](std::int64_t c) { body(c * chunk, std::min(n, (c + 1) * chunk)); });
}

/// Number of workers of `parallel_workers` for n items: at most one per thread.
inline std::int64_t worker_count(std::int64_t n) {
  return std::min<std::int64_t>(n, Kokkos::DefaultHostExecutionSpace().concurrency());
}

/// Calls body(worker, i) for i in [0, n); items of one worker run one after the other, so that they can share its
/// workspace.
template <class Body>
void parallel_workers(std::int64_t n, const Body& body) {
  const std::int64_t workers = worker_count(n);
  parallel(workers, [&](std::int64_t worker) {
    for (std::int64_t i = worker; i < n; i += workers) body(worker, i);
  });
}

}  // namespace trireme::kernels
