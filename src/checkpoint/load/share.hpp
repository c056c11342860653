// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/mpi/communicator.hpp"

/// How the ranks of a job come to what they need of a manifest that one of them has read: that of a checkpoint of
/// thousands of ranks is large, and no rank but the first ever holds more of it than its own part and a few files.
namespace trireme::checkpoint {

/// Whether a rank needs a slice.
using Wanted = std::function<bool(Quantity, const SavedSlice&)>;

/// Whether two pieces of one parameter may have an element in common; false: they have none.
[[nodiscard]] bool may_overlap(const shard::Hyperslab& a, const shard::Hyperslab& b);

/// The slices of `file` that are wanted; datasets without any are left out.
[[nodiscard]] SavedFile part_of(const SavedFile& file, const Wanted& wanted);

/// The first rank's manifest without its files, on every rank. Collective.
[[nodiscard]] Manifest share_head(const mpi::Communicator& world, const Manifest& whole);
/// Distributes the first rank's list of files: each rank gets the entries that it needs. Collective.
[[nodiscard]] std::vector<SavedFile> share_files(const mpi::Communicator& world, const std::vector<SavedFile>& all,
                                                 const Wanted& wanted);

}  // namespace trireme::checkpoint
