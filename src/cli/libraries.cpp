// SPDX-License-Identifier: Apache-2.0
#include "trireme/cli/libraries.hpp"

#include <Kokkos_Core.hpp>

#include "trireme/comm/topology.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/train/threads.hpp"

namespace trireme::cli {

struct Libraries::Kokkos {
  explicit Kokkos(int threads)
      : guard(::Kokkos::InitializationSettings().set_disable_warnings(true).set_num_threads(threads)) {}
  ::Kokkos::ScopeGuard guard;
};

Libraries::Libraries(const comm::Communicator& world, std::int64_t device_threads) {
  device::install_allocator();
  kokkos_ = std::make_unique<Kokkos>(train::use_threads(comm::probe_topology(world), device_threads));
}

Libraries::~Libraries() = default;

}  // namespace trireme::cli
