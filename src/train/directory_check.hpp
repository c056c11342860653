// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// Makes relative output directories absolute, below rank 0's working directory, if ranks have several: only if every
/// rank sees it. Collective over `world`.
[[nodiscard]] config::RunConfig with_common_output(config::RunConfig config, const mpi::Communicator& world);

/// Checks that every node sees the `checkpoint.directory` of rank 0, which exists, and may write there: rank 0 writes a
/// file, one rank of each node (of each view of its files) reads it and writes its own. Nothing if the run
/// saves no checkpoints. Throws CollectiveError with exit code 8 naming rank and node. Collective over `world`, the
/// whole job.
void check_checkpoint_directory(const config::RunConfig& config, const mpi::Communicator& world);

/// Warns if `free` bytes are too few for the checkpoints that a run keeps and the one written before the oldest is
/// removed; empty otherwise. there: checkpoints in the directory.
[[nodiscard]] std::string too_little_space(const config::Checkpoint& options, Bytes checkpoint, std::int64_t there,
                                           Bytes free);

/// Logs that for the directory of a run that saves checkpoints of `model`. For one rank.
void warn_of_little_space(const config::RunConfig& config, const model::Model& model);

}  // namespace trireme::train
