// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "trireme/base/ids.hpp"
#include "trireme/base/units.hpp"
#include "trireme/checkpoint/manifest.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/model/model.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::checkpoint {

/// State of one rank of a run: its shard of every block, fp32, parameters [shard_elements] and states laid out as
/// OptimizerPlan::state_layout. The result of `values` is valid until it is called again, so that values can be made
/// one by one.
struct Shards {
  const model::Model& model;            ///< with a pipeline, this rank's blocks only
  const model::Model* whole = nullptr;  ///< with a pipeline, the model of all its ranks
  const shard::Layout& layout;
  mesh::Mesh mesh;
  mesh::Coordinates at;
  std::function<std::span<float>(Quantity, ParamBlock)> values;
  optimizer::OptimizerPlan optimizer{};  ///< of the states

  [[nodiscard]] int dp_rank() const { return mesh.dp_rank(at).value; }
  [[nodiscard]] const model::Model& whole_model() const { return whole != nullptr ? *whole : model; }
  /// Whether an earlier pipeline rank holds this block, too: it is loaded, but saved by that one.
  [[nodiscard]] bool is_copy(ParamBlock block) const { return model[block].on_two_pipeline_ranks && at.pipeline > 0; }
  [[nodiscard]] bool has(Quantity quantity, ParamBlock block, int parameter) const {
    return quantity == Quantity::parameter || optimizer.has(model[{block, parameter}], state_of(quantity));
  }
  /// Places of values in shard `shard` of a block.
  [[nodiscard]] optimizer::StateLayout places(Quantity quantity, ParamBlock block, int shard) const {
    if (quantity == Quantity::parameter) return {.elements = layout[block].shard_elements()};
    return optimizer.state_layout(model[block], layout[block], shard, state_of(quantity));
  }
};

/// The part of a shard of `elements` elements that replica `replica` of `replicas` writes: multiples of
/// shard::alignment, in closed form.
[[nodiscard]] shard::Range part_of_shard(std::int64_t elements, int replica, int replicas);

/// A digest of all values of a shard that does not depend on how they are cut: the digests of a model's shards add up
/// (modulo 2^64) to the same sum for any number of shards.
[[nodiscard]] std::uint64_t shard_digest(const Shards& shards);

struct SaveOptions {
  std::string directory;            ///< of all the run's checkpoints
  std::int64_t keep = 2;            ///< newest ones of the run that stay
  std::int64_t keep_every = 0;      ///< keeps checkpoints whose step is a multiple; 0: none
  std::int64_t best_step = -1;      ///< that of this step stays, too
  std::int64_t ranks_per_file = 1;  ///< consecutive dp ranks that share a file
  std::int64_t base_step = 0;  ///< this job resumed from it: later ones in the directory are of an abandoned branch
  std::string name{};          ///< of a separate checkpoint: no others are set aside or removed; empty: its step's
};

struct Saved {
  std::string path;
  Bytes bytes{0};
};

/// Writes a checkpoint and commits it: under a temporary name, with checksums, flushed to disk, renamed when all ranks
/// have succeeded; then removes old ones of the same run, if any, once every rank has read back its data. Collective
/// over `world`, a separate communicator whose ranks are the mesh's. Throws WriteError on every rank if any failed;
/// earlier checkpoints stay. Throws ReadError if the data could not be read back: they stay, too. Another Error of exit
/// code 8 requires the end of the job.
Saved save(const mpi::Communicator& world, const Shards& shards, const State& state, const SaveOptions& options);

}  // namespace trireme::checkpoint
