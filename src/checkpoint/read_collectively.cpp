// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/read_collectively.hpp"

#include <algorithm>

#include "trireme/base/io/file.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::checkpoint {

void read_collectively(const mpi::Communicator& world, std::string_view what, const std::function<void()>& work) {
  try {
    mpi::collective_try(world, what, [&] {
      try {
        work();
      } catch (const io::ReadError& error) {
        throw EnvironmentError(error.what());  // its own exit code is that of CheckpointError
      }
    });
  } catch (const mpi::CollectiveError& error) {
    const auto damage = [](const mpi::Failure& failure) { return failure.code == ExitCode::checkpoint; };
    if (std::ranges::all_of(error.failures(), damage)) throw Damaged(error.what());
    throw io::ReadError(error.what());
  }
}

}  // namespace trireme::checkpoint
