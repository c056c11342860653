// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/load/places.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/checkpoint/read_collectively.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/shard/hyperslab.hpp"

namespace trireme::checkpoint {

/// Reads slices of a checkpoint by the manifest alone, with verified checksums and without HDF5, so that damage to a
/// file's structure cannot mislead it. Each rank has a reader and reads its own slices.
class Reader {
 public:
  Reader(std::string path, Manifest manifest);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// Fills `out` with `elements` (row-major) of a parameter or its moment, one run
  /// after the other. Throws CheckpointError with file and dataset if a checksum does
  /// not match or a file cannot be read; BugError if the checkpoint lacks the parameter
  /// or elements. A stored chunk that contains several wanted runs is read once.
  void read(Quantity quantity, std::string_view parameter, const shard::Hyperslab& elements, std::span<float> out);
  /// Reads chunk `index` of a slice into `out`, which has its size. Throws CheckpointError.
  void read_chunk(const SavedFile& file, const SavedDataset& dataset, const SavedSlice& slice, std::int64_t index,
                  std::span<float> out);

 private:
  /// Returns the number of elements that it found.
  std::int64_t read_slice(const Place& place, const shard::Hyperslab& elements, std::span<float> out);
  const io::File& open(const SavedFile& file);

  std::string path_;
  Manifest manifest_;
  Places places_;
  std::map<std::string, int, std::less<>> index_of_;  ///< parameter name -> index
  std::map<std::string, io::File> open_;
  std::vector<float> chunk_;
};

/// Restores `shards` from the checkpoint at `path`, saved on any mesh: every rank reads its part, and a digest verifies
/// that all of them together have the saved state. Collective over `world`. Throws Damaged on every rank, with the
/// file, when any rank finds damage; CheckpointError when it is of another model. If a parameter was updated by another
/// rule than in `shards.optimizer`, all moments and the number of updates are 0, with a warning. The result has the
/// slices of every file that this rank read, and no digests.
[[nodiscard]] Manifest load(const mpi::Communicator& world, const std::string& path, const Shards& shards);

/// Throws CheckpointError with the differences unless `manifest` is of the model `model`. path: for the message.
void check_model(const std::string& path, const Manifest& manifest, const model::Model& model);

}  // namespace trireme::checkpoint
