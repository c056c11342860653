// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/model/exchange.hpp"
#include "trireme/model/keep.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/lane.hpp"
#include "trireme/schedule/optimizer_ops.hpp"
#include "trireme/schedule/phase.hpp"

/// One optimizer step as a value: the verbs. One struct a verb, only its own fields.
namespace trireme::schedule {

/// A buffer of a ring: `ring` groups parameter blocks of the same layout, `index` is the buffer in it.
struct Slot {
  int ring = 0;
  int index = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// Destination of the gradient of one parameter block in a backward; `add`: accumulates. `in_place`: the block's
/// gradient shard, not a slot.
struct GradientTarget {
  ParamBlock block;
  Slot slot;
  bool add = false;
  bool in_place = false;
  friend bool operator==(const GradientTarget&, const GradientTarget&) = default;
};

/// Gathers the parameters of `block` into `slot`: over the shard axis, or over groups of `from` neighbours, from the
/// copies of a `Reshard` to the same groups. `staged`: gathers the shard that an `Upload` put there. `in_place`: this
/// rank's shard is the whole block and is read at its address: no slot, no copy.
struct Unshard {
  ParamBlock block;
  Slot slot;
  std::optional<int> from{};
  std::optional<Slot> staged{};
  bool in_place = false;
  friend bool operator==(const Unshard&, const Unshard&) = default;
};
/// Frees the unsharded parameters of `block`; the slot can be reused. With `to`, every group of `to` neighbours on the
/// shard axis keeps a copy first, partitioned over its ranks (ZeRO++'s secondary partition, Wang et al. 2023).
struct Reshard {
  ParamBlock block;
  std::optional<int> to{};
  friend bool operator==(const Reshard&, const Reshard&) = default;
};
/// Runs the forward of one stage, or of all stages of a block if `stage` is
/// absent. `keep`: tensors saved for backward; with `input` only the input of the
/// block's first stage; with `kv_cache` the keys and values for the next step.
struct Forward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  model::Keep keep = model::Keep::products;
  friend bool operator==(const Forward&, const Forward&) = default;
};
/// Runs the backward of one stage, or of all stages of a block in reverse if `stage` is absent. `gradients` has one
/// target for each parameter block that the stages write. The backward can be split into two ops: `input` computes the
/// gradient of the input, which can be summed over the tensor axis or sent on, and `weight` those of the parameters.
/// `model::pending_tensors` are kept between them; whole stages read no parameter values for `weight`.
enum class BackwardPart : std::uint8_t { whole, input, weight };
struct Backward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  std::vector<GradientTarget> gradients;
  BackwardPart part = BackwardPart::whole;
  friend bool operator==(const Backward&, const Backward&) = default;
};
/// Sums the gradient in `slot` over the shard axis; each rank stores its shard, or adds to it (`add`). `partial`:
/// stores it in a separate buffer, since replicas are summed before it is added. `staged`: stores it in a slot for its
/// offload to the host. `in_place`: backwards wrote into the shard of the only rank; marks it complete.
struct ReduceScatter {
  ParamBlock block;
  Slot slot;
  bool add = false;
  bool partial = false;
  std::optional<Slot> staged{};
  bool in_place = false;
  friend bool operator==(const ReduceScatter&, const ReduceScatter&) = default;
};
/// Sums the gradient shard over the replicate axis, on device or host. `partial`: sums the result of a partial
/// reduce-scatter and adds it to the shard. `staged`: sums the slot that is offloaded next.
struct AllReduce {
  ParamBlock block;
  bool partial = false;
  std::optional<Slot> staged{};
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};
/// Runs the forward of one stage, or of all stages of a block, again before its backward, from the saved input:
/// restores the saved tensors. The unused output of the last stage is not computed.
struct Recompute {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

// Optimizer state, and optionally parameters, in host memory.

/// Copies this rank's shard of `block`, in the compute dtype, from the host to its device buffer, or to `staged`, from
/// which the next unshard gathers.
struct Upload {
  ParamBlock block;
  std::optional<Slot> staged{};
  friend bool operator==(const Upload&, const Upload&) = default;
};
/// Copies the gradient shard in `slot` to the host, or adds it to the gradient there.
struct OffloadGradient {
  ParamBlock block;
  Slot slot;
  bool add = false;
  friend bool operator==(const OffloadGradient&, const OffloadGradient&) = default;
};
/// Sums the squares of a gradient shard in host memory, for `ClipNorm`.
struct SumSquares {
  ParamBlock block;
  friend bool operator==(const SumSquares&, const SumSquares&) = default;
};

// Activations in host memory between forward and backward.

/// Copies saved tensors of a block to the host: those of at least `min_bytes`.
struct OffloadActivations {
  Block block;
  Microbatch microbatch;
  Bytes min_bytes;
  friend bool operator==(const OffloadActivations&, const OffloadActivations&) = default;
};
/// Frees the device memory of tensors that have been copied to the host.
struct DropActivations {
  Block block;
  Microbatch microbatch;
  friend bool operator==(const DropActivations&, const DropActivations&) = default;
};
/// Allocates device memory for `ReloadActivations`. On the compute lane,
/// so that memory freed by an earlier backward is reused in stream order
/// and the peak is that of `trireme plan`, however far the host is ahead.
struct AllocateActivations {
  Block block;
  Microbatch microbatch;
  friend bool operator==(const AllocateActivations&, const AllocateActivations&) = default;
};
/// Copies the tensors back to the device.
struct ReloadActivations {
  Block block;
  Microbatch microbatch;
  friend bool operator==(const ReloadActivations&, const ReloadActivations&) = default;
};

using model::Exchange;
/// A collective between two stages of a block, before or after the ops that run stage `segment`. Its row in
/// exchange.hpp has the lane, the collective, the phases and the accesses.
struct Exchanged {
  Exchange kind;
  Block block;
  Stage segment;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  friend bool operator==(const Exchanged&, const Exchanged&) = default;
};
/// Computes the output of norm `segment` again from its saved tensors, for the weights' gradients of the next stage.
struct Rebuild {
  Block block;
  Stage segment;
  Microbatch microbatch;
  friend bool operator==(const Rebuild&, const Rebuild&) = default;
};
/// Ranks that hold the same parameters: of the tensor axis, each having seen other tokens or heads; or the two pipeline
/// ranks that have a tied embedding, one for its lookup and one for the head.
enum class Copies : std::uint8_t { tensor, pipeline };
/// Sums the gradients of parameters that several ranks hold.
struct AllReduceReplicated {
  ParamBlock block;
  Copies over = Copies::tensor;
  friend bool operator==(const AllReduceReplicated&, const AllReduceReplicated&) = default;
};

// Pipeline parallelism. Edge e connects chunks e and e + 1 of the model: the residual stream passes forward over it,
// its gradient backward. Buffers are slots of two rings, allocated once.

using Edge = StrongId<struct EdgeTag>;
/// Copies the output stream of a chunk, or the gradient of its input, into a slot for sending.
struct Put {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  friend bool operator==(const Put&, const Put&) = default;
};
/// Sends the contents of `slot` to pipeline rank `peer`; ends when the peer has received them.
struct Send {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  int peer = 0;
  friend bool operator==(const Send&, const Send&) = default;
};
/// Receives into `slot` from pipeline rank `peer`.
struct Receive {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  int peer = 0;
  friend bool operator==(const Receive&, const Receive&) = default;
};
/// Makes the contents of `slot` the input stream of a chunk, or the gradient of its output; frees the slot.
struct Take {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  friend bool operator==(const Take&, const Take&) = default;
};

using Op =
    std::variant<Unshard, Reshard, Forward, Backward, ReduceScatter, AllReduce, ClipNorm, Update, Recompute, Upload,
                 OffloadGradient, SumSquares, OffloadActivations, DropActivations, ReloadActivations, Exchanged,
                 Rebuild, AllReduceReplicated, Put, Send, Receive, Take, AllocateGradient, FreeGradient,
                 AllocateActivations, PrepareMatrices, GatherMatrices, Orthogonalize, ScatterMatrices>;

[[nodiscard]] Lane lane_of(const Op& op);

/// A list of ops, cyclic over steps: the last op is followed by the next step's first.
struct Schedule {
  int microbatches = 1;
  std::vector<Op> ops;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace trireme::schedule
