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

/// A shard file, as seen by one of the ranks that wrote it.
struct WrittenFile {
  bool first = true;                  ///< this rank is the first writer: `saved` is complete
  SavedFile saved;                    ///< else: its path
  std::vector<std::string> datasets;  ///< names
  std::vector<WrittenChunk> chunks;
};

/// Work of a rank while the disk writes its data.
using Meanwhile = std::function<void()>;

/// Writes the parts of all ranks of `group` to one file below `path`, named after the first of them, flushed to disk.
/// Every rank lays the file out by HDF5 in memory, with equal results; the first one writes the layout, all write their
/// values by plain writes, which report a full disk where HDF5 does not always. Parallel HDF5 is not used: there a rank
/// that fails leaves the others waiting. group: the dp ranks of `writers_of`, in order, at one tensor rank; null: this
/// rank alone. Collective over `group`; where one rank fails all of them leave at the same step. Throws WriteError;
/// with a group mpi::CollectiveError.
[[nodiscard]] WrittenFile write_shard_file(const mpi::Communicator* group, const std::string& path,
                                           const Shards& shards, std::int64_t ranks_per_file,
                                           const Meanwhile& meanwhile);

/// Reads this rank's part of a file below `path` again, from the disk if the system allows it, and on the first rank
/// all bytes outside of slices. Throws CheckpointError with file and dataset when they differ from the written ones.
void read_back(const std::string& path, const WrittenFile& written);

/// Bytes of all shard files of a checkpoint, without HDF5's metadata.
[[nodiscard]] std::int64_t data_bytes(const Shards& shards);

/// The byte range of every slice in the file, in order: [begin, end).
[[nodiscard]] std::vector<shard::Range> slice_bytes(const SavedFile& file);

/// XXH3 of all bytes outside the slices, in order.
[[nodiscard]] std::uint64_t hash_rest(const io::File& file, const SavedFile& saved);

}  // namespace trireme::checkpoint
