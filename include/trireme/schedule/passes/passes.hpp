// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

/// The passes that build a schedule, each a function from a schedule to a schedule. `build.hpp` lists them in order.
namespace trireme::schedule {

/// Forward of every stage, then backward of every stage in reverse, microbatch by microbatch.
[[nodiscard]] Schedule compute_order(const model::Model& model, int microbatches);

/// Forward of every stage once: evaluation and generation.
[[nodiscard]] Schedule forward_order(const model::Model& model);

/// What blocks keep between forward and backward: every `every`-th block that computes more than its input (the first,
/// then one of so many) as `mode` says, the others all that backward reads.
struct RecomputePolicy {
  config::Recompute mode = config::Recompute::selective;
  std::int64_t every = 1;
};
/// Sets what each forward keeps, and puts a recompute before the backward of each block that keeps its input only.
[[nodiscard]] Schedule insert_recompute(Schedule schedule, const model::Model& model, RecomputePolicy policy);

/// Gathers each parameter block before an op that reads it and gives it up after one, unless the next compute op reads
/// it too or the policy keeps it. `after_forward` false keeps a block until its backward; `after_backward` false until
/// the update.
/// `group` (with after_forward): what is resharded between two uses in one microbatch is kept in groups of so many
/// neighbours.
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

/// Clips by the global norm and updates every parameter block, in forward order: on the compute lane, or `beside` the
/// next step's forward.
[[nodiscard]] Schedule insert_update(Schedule schedule, const model::Model& model, bool beside = false);

/// Moves each unshard ahead of the compute ops before it, as long as the bytes gathered and not yet read stay within
/// `limit`; without a limit: one block ahead.
[[nodiscard]] Schedule prefetch(Schedule schedule, const model::Model& model, DType compute,
                                std::optional<Bytes> limit);

/// What lives in host memory: `what` of the first blocks whose parameters make up `fraction` of all.
struct OffloadPolicy {
  config::Offload what = config::Offload::none;
  double fraction = 1;
};
/// Sends gradient shards to the host as they appear, sums their squares and updates them there, and uploads the new
/// parameters: after the update, or with `parameters` before each gather (ZeRO-Offload, Ren et al. 2021). Where
/// replicas sum gradients once a step, they do so on the host. After fusion and prefetch, before slots.
[[nodiscard]] Schedule insert_offload(Schedule schedule, const model::Model& model, OffloadPolicy policy);

/// What waits in host memory between forward and backward.
struct ActivationOffloadPolicy {
  bool on = false;
  Bytes min_bytes{0};          ///< of a tensor: smaller ones stay
  std::int64_t in_flight = 1;  ///< blocks that are copied at once, either way
};
/// Copies what each block but the last keeps to the host after its forward and back ahead of its backward, so that at
/// most `in_flight` + 1 blocks' activations are on the device. After insert_recompute and fusion.
[[nodiscard]] Schedule insert_activation_offload(Schedule schedule, const model::Model& model,
                                                 ActivationOffloadPolicy policy);

/// Which blocks need no copies between their shards and slots.
struct InPlacePolicy {
  std::optional<int> shards{};  ///< ranks that share the parameters; nothing: every block is gathered into a slot
  bool gradients = true;        ///< false: each reduction rounds what it reads
};
/// Where one rank gathers a block, its parameters are read and its gradients are written where its shards lie: nothing
/// is copied. What goes through the host's memory keeps its slots, and so do gradients that are reduced more than once
/// a step: a sum that is rounded in another order would be another one with offload than without. After insert_offload,
/// before slots.
[[nodiscard]] Schedule insert_in_place(Schedule schedule, const model::Model& model, const InPlacePolicy& policy);

/// Allocates the gradient shards that live on the device before they are written, and frees them behind their updates,
/// where those run beside the forward before its first read of the block; not `transient`: they keep their memory.
/// After insert_in_place.
[[nodiscard]] Schedule insert_gradient_memory(Schedule schedule, const model::Model& model, bool transient);

/// Keeps the keys and values of every attention for the next forward, which then computes the tokens that were added
/// since. After fuse_stages.
[[nodiscard]] Schedule insert_kv_cache(Schedule schedule, const model::Model& model);

/// Joins the stages of a block into one op where nothing stands between them.
[[nodiscard]] Schedule fuse_stages(Schedule schedule, const model::Model& model);

/// Gives every unshard a slot and every gradient a buffer: the least recently freed one of its ring, a new one if none
/// is free.
[[nodiscard]] Schedule assign_slots(Schedule schedule, const model::Model& model);

}  // namespace trireme::schedule
