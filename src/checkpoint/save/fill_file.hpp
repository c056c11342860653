// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/save/shard_file.hpp"
#include "checkpoint/save/shard_plan.hpp"

/// The steps of writing a shard file, alone or in a group.
namespace trireme::checkpoint {

/// Writes an HDF5 file `name` with all planned datasets in place and nothing in them, and notes where they lie. Throws
/// WriteError.
void lay_out(const std::string& name, std::vector<PlannedDataset>& planned);

/// Writes the values of dp rank `shards.dp_rank()` to their places in the file `name`, hashing them on the way, calls
/// `meanwhile`, and flushes them to disk. Throws WriteError.
[[nodiscard]] std::vector<WrittenChunk> fill(const std::string& name, const Shards& shards,
                                             std::vector<PlannedDataset>& planned, const Meanwhile& meanwhile);

/// What is known of a file whose values are all on disk. Throws CheckpointError.
[[nodiscard]] WrittenFile described(const std::string& path, SavedFile saved, std::vector<PlannedDataset>& planned,
                                    std::vector<WrittenChunk> chunks);

}  // namespace trireme::checkpoint
