// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "checkpoint/save/shard_file.hpp"
#include "trireme/base/error.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// Another rank of the group has what went wrong, and says it.
struct FailedElsewhere : std::runtime_error {
  FailedElsewhere() : std::runtime_error("another rank of the group failed") {}
};

/// HDF5 failed on some ranks of a group within calls that all must make alike: the file cannot be closed any more, as
/// closing waits for all. The job has to end.
struct TornFile : Error {
  explicit TornFile(const std::string& what) : Error(ExitCode::write, what) {}
};

/// Writes the parts of all ranks of `group` to one file below `path`, named after the first of them: parallel HDF5 lays
/// it out, then every rank writes its values to their places. group: the dp ranks of `writers_of`, in order, at one
/// tensor rank; a communicator of its own. Collective over `group`; where one rank fails all of them leave at the same
/// step. Throws WriteError on the rank that failed and FailedElsewhere on the others, or TornFile on all; ends the job
/// where HDF5 fails in a call in which the others may wait for this rank.
[[nodiscard]] WrittenFile write_group_file(const mpi::Communicator& group, const std::string& path,
                                           const Shards& shards, std::int64_t ranks_per_file,
                                           const Meanwhile& meanwhile);

}  // namespace trireme::checkpoint
