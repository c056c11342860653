// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "checkpoint/rank_shards.hpp"
#include "trireme/base/error.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/load.hpp"

namespace trireme::checkpoint {

inline std::string message_of(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Saves and loads of a small model on every mesh that the ranks allow.
class Saves : public testing::Test {
 protected:
  /// Every mesh of at most as many ranks as there are.
  [[nodiscard]] std::vector<mesh::Mesh> meshes() const {
    std::vector<mesh::Mesh> all;
    for (int replicate = 1; replicate <= world_.size(); ++replicate)
      for (int shard = 1; shard * replicate <= world_.size(); ++shard)
        for (const int tensor : {1, 2, 4})
          if (replicate * shard * tensor <= world_.size())
            all.push_back({.replicate = replicate, .shard = shard, .tensor = tensor});
    return all;
  }

  /// Runs `body(communicator)` on the ranks that `mesh` needs.
  template <class Body>
  void on(const mesh::Mesh& mesh, Body&& body) const {
    const mpi::Communicator some = world_.split(world_.rank() < mesh.ranks() ? 0 : 1, world_.rank());
    if (world_.rank() < mesh.ranks()) body(some);
    MPI_Barrier(world_.handle());
  }

  void save_step(const mesh::Mesh& mesh, std::int64_t step, SaveOptions options) const {
    if (options.base_step == 0) options.base_step = step - 1;
    on(mesh, [&](const mpi::Communicator& ranks) {
      RankShards held(mesh, ranks.rank());
      held.fill(step);
      (void)save(ranks, held.shards(), state_at(step), options);
    });
  }

  [[nodiscard]] mesh::Mesh whole() const { return {.replicate = 1, .shard = world_.size(), .tensor = 1}; }

  void expect_loads(const mesh::Mesh& mesh, const std::string& path, std::int64_t step) const {
    on(mesh, [&](const mpi::Communicator& ranks) {
      RankShards held(mesh, ranks.rank());
      const Manifest manifest = load(ranks, path, held.shards());
      EXPECT_TRUE(held.holds(step)) << mesh.text();
      EXPECT_EQ(manifest.state.step, step);
      EXPECT_EQ(manifest.state.updates, step - 1);
      EXPECT_EQ(manifest.state.samples, 12 * step);
    });
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  SharedDirectory directory_{world_};
};

}  // namespace trireme::checkpoint
