// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/team.hpp"

#include "optim/team_space.hpp"

namespace trireme::optim {
namespace {

template <class Space>
Space space_of(int threads) {
  if constexpr (requires { Space(threads); })
    return Space(threads);
  else
    return Space();
}

}  // namespace

Team::Team() : space_(std::make_unique<Space>()) {}
Team::Team(int threads) : space_(new Space{space_of<Kokkos::DefaultHostExecutionSpace>(threads)}) {}
Team::Team(Team&&) noexcept = default;
Team& Team::operator=(Team&&) noexcept = default;
Team::~Team() = default;

}  // namespace trireme::optim
