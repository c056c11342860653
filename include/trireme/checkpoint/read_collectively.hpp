// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// A checkpoint whose files are missing or damaged: an older one may be usable.
struct Damaged : CheckpointError {
  using CheckpointError::CheckpointError;
};

/// Runs `work` on every rank. Where it fails on any, every rank throws the same: Damaged if each failed rank threw
/// CheckpointError, io::ReadError if any failed otherwise. what: as for mpi::collective_try. Collective over `world`.
void read_collectively(const mpi::Communicator& world, std::string_view what, const std::function<void()>& work);

}  // namespace trireme::checkpoint
