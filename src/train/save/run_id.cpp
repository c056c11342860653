// SPDX-License-Identifier: Apache-2.0
#include "train/save/run_id.hpp"

#include <fmt/format.h>

#include <random>

#include "trireme/mpi/broadcast.hpp"

namespace trireme::train {

std::string new_run_id(const mpi::Communicator& world) {
  std::string id;
  if (world.rank() == 0) {
    std::random_device random;
    id = fmt::format("{:08x}{:08x}", random(), random());
  }
  return mpi::broadcast_text(world, std::move(id));
}

}  // namespace trireme::train
