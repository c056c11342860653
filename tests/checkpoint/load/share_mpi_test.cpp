// SPDX-License-Identifier: Apache-2.0
//
// What the ranks are told of a manifest of thousands of ranks: some files at a time, of which each keeps its own part.
// ranks: 2
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>

#include "checkpoint/load/share.hpp"

namespace {
int largest_broadcast = 0;  // bytes
}  // namespace

// MPI's profiling interface.
extern "C" int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm group, MPI_Request* request) {
  if (type == MPI_CHAR) largest_broadcast = std::max(largest_broadcast, count);
  return PMPI_Ibcast(bytes, count, type, root, group, request);
}

namespace trireme::checkpoint {
namespace {

constexpr int mebibyte = 1 << 20;

/// A file with a slice of parameter `n`, whose checksums take a megabyte.
SavedFile large_file(int n) {
  SavedSlice slice{};
  slice.parameter = n;
  slice.hyperslab = shard::Hyperslab::of({.begin = 0, .end = 64});
  slice.checksums.resize(mebibyte / sizeof(std::uint64_t), static_cast<std::uint64_t>(n));
  SavedDataset dataset{};
  dataset.name = "model/b0";
  dataset.slices = {slice};
  return {.path = shard_path(n), .dp_rank = n, .datasets = {dataset}};
}

TEST(ShareFiles, SendsAFewAtATimeAndLeavesEachRankItsPart) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  std::vector<SavedFile> all;
  if (world.rank() == 0)
    for (int n = 0; n < 8; ++n) all.push_back(large_file(n));
  largest_broadcast = 0;
  const std::vector<SavedFile> mine =
      share_files(world, all, [&](Quantity, const SavedSlice& slice) { return slice.parameter == 3 * world.rank(); });
  EXPECT_GT(largest_broadcast, mebibyte);
  EXPECT_LT(largest_broadcast, 4 * mebibyte) << "of 8";
  ASSERT_EQ(mine.size(), 1U);
  EXPECT_EQ(mine.front().path, shard_path(3 * world.rank()));
  EXPECT_EQ(mine.front().datasets.front().slices.size(), 1U);
  EXPECT_EQ(mine.front().datasets.front().slices.front().parameter, 3 * world.rank());
}

}  // namespace
}  // namespace trireme::checkpoint
