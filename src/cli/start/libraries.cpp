// SPDX-License-Identifier: Apache-2.0
#include "cli/start/libraries.hpp"

#include <Kokkos_Core.hpp>

#include "trireme/device/allocator.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/train/setup/threads.hpp"

namespace trireme::cli {

struct Libraries::Kokkos {
  explicit Kokkos(int threads)
      : guard(::Kokkos::InitializationSettings().set_disable_warnings(true).set_num_threads(threads)) {}
  ::Kokkos::ScopeGuard guard;
};

Libraries::Libraries(const mpi::Communicator& world, std::int64_t device_threads) {
  device::install_allocator();
  kokkos_ = std::make_unique<Kokkos>(train::use_threads(mpi::probe_topology(world), device_threads));
}

Libraries::~Libraries() = default;

}  // namespace trireme::cli
