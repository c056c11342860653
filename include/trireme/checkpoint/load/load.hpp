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

/// Reads slices of a checkpoint by the manifest alone, checksums verified; HDF5 is not asked, so that no damage of a
/// file's structure can mislead it. Every rank opens its own and reads what it needs.
class Reader {
 public:
  Reader(std::string path, Manifest manifest);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }

  /// Fills `out` with `elements` (row-major) of a parameter or its moment, one run after the other. Throws
  /// CheckpointError naming file and dataset when a checksum does not fit or a file cannot be read; BugError for a
  /// parameter, or elements, that are not there. What is stored in other runs is read once for all that is wanted of
  /// it.
  void read(Quantity quantity, std::string_view parameter, const shard::Hyperslab& elements, std::span<float> out);
  /// Reads chunk `index` of a slice into `out`, as large as it is. Throws CheckpointError.
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

/// Restores all of `shards` from the checkpoint at `path`, whatever mesh saved it: every rank reads what it holds, and
/// all of them prove by digest that together they hold what was saved. Collective over `world`. Throws Damaged on
/// every rank, naming the file, when any rank finds it so; CheckpointError when it is of another model. The result
/// lists of every file what this rank read of it, and no digests.
[[nodiscard]] Manifest load(const mpi::Communicator& world, const std::string& path, const Shards& shards);

/// Throws CheckpointError listing what differs unless `manifest` is of the model `model`. path: for the message.
void check_model(const std::string& path, const Manifest& manifest, const model::Model& model);

}  // namespace trireme::checkpoint
