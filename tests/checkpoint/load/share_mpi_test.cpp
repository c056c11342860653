// SPDX-License-Identifier: Apache-2.0
//
// Distribution of a manifest of thousands of ranks: each rank receives only the part that it needs.
// ranks: 2 4
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>

#include "checkpoint/load/share.hpp"
#include "checkpoint/rank_shards.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"

namespace {
std::int64_t scattered = 0, broadcast = 0;  // bytes that this rank receives
}  // namespace

// MPI's profiling interface.
extern "C" int MPI_Iscatterv(const void* from, const int counts[], const int at[], MPI_Datatype type, void* to,
                             int count, MPI_Datatype to_type, int root, MPI_Comm group, MPI_Request* request) {
  scattered += count;
  return PMPI_Iscatterv(from, counts, at, type, to, count, to_type, root, group, request);
}
extern "C" int MPI_Ibcast(void* bytes, int count, MPI_Datatype type, int root, MPI_Comm group, MPI_Request* request) {
  if (type == MPI_CHAR) broadcast += count;
  return PMPI_Ibcast(bytes, count, type, root, group, request);
}

namespace trireme::checkpoint {
namespace {

constexpr int mebibyte = 1 << 20;
constexpr int files = 16;

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

/// On the first rank; nothing on the others.
Manifest large_manifest(int rank) {
  Manifest manifest;
  if (rank > 0) return manifest;
  manifest.mesh.shard = files;
  for (int n = 0; n < files; ++n) {
    manifest.parameters.push_back({.name = std::to_string(n), .shape = {64}});
    manifest.files.push_back(large_file(n));
    manifest.digests.push_back(static_cast<std::uint64_t>(100 + n));
  }
  return manifest;
}

Request request_of(int parameter) {
  return {.pieces = {{.parameter = parameter, .hyperslab = {.first = 3, .length = 5}}}, .digest_of = parameter};
}

void expect_part(const Part& part, int parameter) {
  ASSERT_EQ(part.files.size(), 1U);
  EXPECT_EQ(part.files.front().path, shard_path(parameter));
  EXPECT_EQ(part.files.front().datasets.front().slices.size(), 1U);
  EXPECT_EQ(part.files.front().datasets.front().slices.front().parameter, parameter);
  EXPECT_EQ(part.digest, static_cast<std::uint64_t>(100 + parameter));
  EXPECT_EQ(part.digest_of_replica, static_cast<std::uint64_t>(files * 100 + files * (files - 1) / 2));
}

TEST(SharePart, SendsEachRankNoMoreThanItsPart) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const Manifest whole = large_manifest(world.rank());
  RankShards held({.shard = world.size()}, world.rank());
  scattered = broadcast = 0;
  const Manifest head = share_head(world, whole);
  EXPECT_EQ(head.parameters.size(), std::size_t{files});
  EXPECT_TRUE(head.files.empty());
  EXPECT_TRUE(head.digests.empty()) << "one of each rank that saved";
  EXPECT_LT(broadcast, 4096);
  const int parameter = 3 * world.rank();
  expect_part(share_part(world, whole, request_of(parameter), held.shards()), parameter);
  EXPECT_LT(scattered + broadcast, mebibyte + 8192);
}

TEST(SharePart, GivesOtherReplicasTheFirstOnesPart) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const Manifest whole = large_manifest(world.rank());
  const mesh::Mesh mesh{.replicate = 2, .shard = world.size() / 2};
  RankShards held(mesh, world.rank());
  scattered = broadcast = 0;
  const mesh::Coordinates at = mesh.coordinates(Rank{world.rank()});
  const int parameter = 3 * at.shard;
  expect_part(share_part(world, whole, request_of(parameter), held.shards()), parameter);
  EXPECT_EQ(scattered > 0, at.replicate == 0) << "the first rank sends to one replica only";
  EXPECT_LT(broadcast, mebibyte + 8192);
}

/// Values that a run begins with, read from a checkpoint that other shards of the same model wrote.
void expect_first_values(const mpi::Communicator& world, const std::string& path, const mesh::Mesh& mesh,
                         const config::Model& sizes) {
  RankShards held(mesh, world.rank(), sizes), wanted(mesh, world.rank(), sizes);
  wanted.fill(10);
  config::RunConfig config;
  config.model = sizes;
  config.model.from = path;
  const Shards shards = held.shards();
  const store::ParameterInitializer initializer = first_parameters(config, world, shards);
  for (int b = 0; b < held.model().param_blocks(); ++b) {
    const ParamBlock block{b};
    const std::span<float> values(held.values(Quantity::parameter, block));
    for (const shard::Slice& slice : shard::whole_slices(shards.model[block], shards.layout[block], shards.at.shard))
      EXPECT_NO_THROW(initializer(
          shards.model[{block, slice.parameter}], slice.elements,
          values.subspan(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(slice.elements.size()))));
    EXPECT_EQ(held.values(Quantity::parameter, block), wanted.values(Quantity::parameter, block)) << path << " " << b;
  }
}

TEST(SharePart, HasAllThatFirstValuesTake) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  const SharedDirectory directory(world);
  config::Model transposed = small_model();  // in Hugging Face's files: read as a whole
  transposed.architecture = "gpt2";
  transposed.positions = 32;
  transposed.heads = transposed.kv_heads = 4;
  transposed.head_dim = 9;
  for (const config::Model& sizes : {small_model(), transposed}) {
    RankShards saved({.shard = world.size()}, world.rank(), sizes);
    saved.fill(10);
    const std::string path =
        save(world, saved.shards(), state_at(10), {.directory = directory.path(), .name = sizes.architecture}).path;
    expect_first_values(world, path, {.shard = world.size() / 2, .tensor = 2}, sizes);
    expect_first_values(world, path, {.replicate = 2, .shard = world.size() / 2}, sizes);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
