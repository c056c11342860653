// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>

#include "trireme/optim/team.hpp"

namespace trireme::optim {

struct Team::Space {
  Kokkos::DefaultHostExecutionSpace kokkos;
};

/// Calls body(i) for i in [0, n) on the team's threads; returns when all are done.
template <class Body>
void parallel(const Team& team, std::int64_t n, const Body& body) {
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  const Kokkos::DefaultHostExecutionSpace& space = team.space().kokkos;
  Kokkos::parallel_for(Policy(space, 0, n), body);
  space.fence("a pass of the optimizer is done");
}

}  // namespace trireme::optim
