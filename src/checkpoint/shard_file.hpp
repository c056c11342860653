// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/file.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/checkpoint/save.hpp"

namespace trireme::checkpoint {

/// Writes this rank's part of its shard to `path`/<shard_path>, flushed to disk, and says what is in it. HDF5 lays the
/// file out, plain writes fill it: they report a full disk, HDF5 does not always. Throws WriteError.
[[nodiscard]] SavedFile write_shard_file(const std::string& path, const Shards& shards);

/// Bytes of all shard files of a model, but for HDF5's own.
[[nodiscard]] std::int64_t data_bytes(const shard::Layout& layout);

/// Where the bytes of every slice lie in the file, in order: [begin, end).
[[nodiscard]] std::vector<shard::Range> slice_bytes(const SavedFile& file);

/// XXH3 of all bytes outside the slices, in order.
[[nodiscard]] std::uint64_t hash_rest(const File& file, const SavedFile& saved);

}  // namespace trireme::checkpoint
