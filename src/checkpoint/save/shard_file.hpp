// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// Bytes that this rank wrote, as it hashed them in memory.
struct WrittenChunk {
  std::size_t dataset = 0;  ///< index in WrittenFile::datasets
  shard::Range bytes;       ///< of the file
  std::uint64_t checksum = 0;
};

/// A shard file, as one of the ranks that wrote it knows it.
struct WrittenFile {
  bool first = true;                  ///< this rank is the first of them: `saved` is complete
  SavedFile saved;                    ///< else: its path
  std::vector<std::string> datasets;  ///< names
  std::vector<WrittenChunk> chunks;
};

/// What a rank does while the disk is busy with what it wrote.
using Meanwhile = std::function<void()>;

/// Writes the parts of all ranks of `group` to one file below `path`, named after the first of them, flushed to disk.
/// Every rank lays the file out by HDF5 in memory, with equal results; the first one writes the layout, all write their
/// values by plain writes, which report a full disk where HDF5 does not always. Parallel HDF5 is not used: there a rank
/// that fails leaves the others waiting. group: the dp ranks of `writers_of`, in order, at one tensor rank. Collective
/// over `group`; where one rank fails all of them leave at the same step. Throws mpi::CollectiveError.
[[nodiscard]] WrittenFile write_shard_file(const mpi::Communicator& group, const std::string& path,
                                           const Shards& shards, std::int64_t ranks_per_file,
                                           const Meanwhile& meanwhile);

/// Reads what this rank wrote to a file below `path` again, from the disk where the system lets it, and the first rank
/// all that belongs to no slice. Throws CheckpointError naming file and dataset when it is something else.
void read_back(const std::string& path, const WrittenFile& written);

/// Bytes of all shard files of a checkpoint, but for HDF5's own.
[[nodiscard]] std::int64_t data_bytes(const Shards& shards);

/// Where the bytes of every slice lie in the file, in order: [begin, end).
[[nodiscard]] std::vector<shard::Range> slice_bytes(const SavedFile& file);

/// XXH3 of all bytes outside the slices, in order.
[[nodiscard]] std::uint64_t hash_rest(const io::File& file, const SavedFile& saved);

}  // namespace trireme::checkpoint
