// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checkpoint/save/shard_file.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// Writes the parts of all ranks of `group` to one file below `path`, named after the first of them, which lays it out;
/// then every rank writes its values to their places. HDF5 itself talks to no other rank: within parallel HDF5 a rank
/// that fails (a full disk, no descriptor left) leaves the others waiting for it. group: the dp ranks of `writers_of`,
/// in order, at one tensor rank. Collective over `group`; where one rank fails all of them leave at the same step.
/// Throws mpi::CollectiveError.
[[nodiscard]] WrittenFile write_group_file(const mpi::Communicator& group, const std::string& path,
                                           const Shards& shards, std::int64_t ranks_per_file,
                                           const Meanwhile& meanwhile);

}  // namespace trireme::checkpoint
