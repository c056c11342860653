// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/owners.hpp"
#include "trireme/schedule/op.hpp"

/// The passes that build a schedule, each a function from a schedule to a schedule. `build.hpp` lists them in order.
namespace trireme::schedule {

/// Forward of every stage, then backward of every stage in reverse, microbatch by microbatch.
[[nodiscard]] Schedule compute_order(const model::Model& model, int microbatches);

/// Forward of every stage once: evaluation and generation.
[[nodiscard]] Schedule forward_order(const model::Model& model);

/// Tensors saved between forward and backward: `mode` applies to every `every`-th block, from the first on, of those
/// that compute more than their input; the other blocks save all that backward reads.
struct RecomputePolicy {
  config::Recompute mode = config::Recompute::selective;
  std::int64_t every = 1;
};
/// Sets the saved tensors of each forward, and inserts a recompute before backwards of blocks that save only an input.
[[nodiscard]] Schedule insert_recompute(Schedule schedule, const model::Model& model, RecomputePolicy policy);

/// Gathers each parameter block before an op that reads it and frees it after one, unless the
/// next compute op reads it too or the policy keeps it. `after_forward` false keeps a block until
/// its backward (ZeRO-2); `after_backward` false until the update. `group` (with after_forward):
/// between two uses in one microbatch, groups of that many neighbours on the shard axis keep a
/// copy of a resharded block, from which the next use gathers it (ZeRO++, Wang et al. 2023).
struct ReshardPolicy {
  bool after_forward = true;
  bool after_backward = true;
  std::optional<int> group{};
};
[[nodiscard]] Schedule insert_unshard(Schedule schedule, const model::Model& model, ReshardPolicy policy);

/// Reduces each gradient after the last backward that writes it: of every microbatch (immediate) or of the step
/// (deferred). With `replicas` > 1 the all-reduce follows the step's last reduce-scatter; under immediate_all every
/// one, as FSDP2 does by default.
[[nodiscard]] Schedule insert_reduction(Schedule schedule, const model::Model& model, config::SyncPolicy policy,
                                        int replicas);

/// Clips by the global norm and updates every parameter block, in forward order: on the compute lane or, with the last
/// argument, on a separate one, concurrently with the next step's forward.
[[nodiscard]] Schedule insert_update(Schedule schedule, const model::Model& model, bool beside = false);

/// Which matrices Muon updates, and their owners among the ranks that share the parameters.
struct MuonPolicy {
  int shards = 1;
  optimizer::OwnerOptions owners;
  friend bool operator==(const MuonPolicy&, const MuonPolicy&) = default;
};
/// Places the ops of Muon between clip_norm and the updates, window by window of optimizer::OwnerPlan; nothing: AdamW
/// updates all. After insert_update, which is the step's tail.
[[nodiscard]] Schedule insert_matrices(Schedule schedule, const model::Model& model,
                                       const std::optional<MuonPolicy>& policy);

/// Moves each unshard ahead of the compute ops before it, as long as the bytes gathered and not yet read stay within
/// `limit`; without a limit: one block ahead.
[[nodiscard]] Schedule prefetch(Schedule schedule, const model::Model& model, DType compute,
                                std::optional<Bytes> limit);

/// State in host memory: `what` of the first blocks whose parameters make up `fraction` of all.
struct OffloadPolicy {
  config::Offload what = config::Offload::none;
  double fraction = 1;
};
/// Sends gradient shards to the host as they appear, sums their squares and updates them there, and uploads the new
/// parameters: after the update, or with `parameters` before each gather (ZeRO-Offload, Ren et al. 2021). Where
/// replicas sum gradients once a step, they do so on the host. After fusion and prefetch, before slots.
[[nodiscard]] Schedule insert_offload(Schedule schedule, const model::Model& model, OffloadPolicy policy);

/// Activations in host memory between forward and backward.
struct ActivationOffloadPolicy {
  bool on = false;
  Bytes min_bytes{0};          ///< of a tensor: smaller ones stay
  std::int64_t in_flight = 1;  ///< blocks that are copied at once, either way
};
/// Copies the saved tensors of each block except the last to the host after its forward and back ahead of its backward,
/// so that at most `in_flight` + 1 blocks' activations are on the device. After insert_recompute and fusion.
[[nodiscard]] Schedule insert_activation_offload(Schedule schedule, const model::Model& model,
                                                 ActivationOffloadPolicy policy);

/// Selects the blocks without copies between their shards and slots.
struct InPlacePolicy {
  std::optional<int> shards{};  ///< ranks that share the parameters; nothing: every block is gathered into a slot
  bool gradients = true;        ///< false: each reduction rounds its input
};
/// If one rank holds a whole block, its parameters are read and its gradients are
/// written in its shards, without copies. Offloaded state keeps its slots, and so do
/// gradients that are reduced more than once per step: another order of rounding would
/// make results with and without offload differ. After insert_offload, before slots.
[[nodiscard]] Schedule insert_in_place(Schedule schedule, const model::Model& model, const InPlacePolicy& policy);

/// Allocates gradient shards on the device before they are written, and frees them after their updates; if these run
/// concurrently with the forward, before its first read of the block. Without `transient` they keep their memory. After
/// insert_in_place.
[[nodiscard]] Schedule insert_gradient_memory(Schedule schedule, const model::Model& model, bool transient);

/// Keeps the keys and values of every attention for the next forward, which then computes the tokens that were added
/// since. After fuse_stages.
[[nodiscard]] Schedule insert_kv_cache(Schedule schedule, const model::Model& model);

/// Joins the stages of a block into one op if no op is between them.
[[nodiscard]] Schedule fuse_stages(Schedule schedule, const model::Model& model);

/// Assigns a slot to every unshard and a buffer to every gradient: the least recently freed one of its ring, a new one
/// if none is free.
[[nodiscard]] Schedule assign_slots(Schedule schedule, const model::Model& model);

}  // namespace trireme::schedule
