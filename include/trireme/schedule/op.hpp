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

/// Where a backward puts the gradient of one parameter block, and whether it adds to what is there. `in_place`: into
/// the block's gradient shard, not into a slot.
struct GradientTarget {
  ParamBlock block;
  Slot slot;
  bool add = false;
  bool in_place = false;
  friend bool operator==(const GradientTarget&, const GradientTarget&) = default;
};

/// Gathers the parameters of `block` into `slot`: over the shard axis, or over groups of `from` neighbours out of the
/// copies that a `Reshard` to the same groups left. `staged`: out of the shard that an `Upload` put there. `in_place`:
/// this rank's shard is all that is gathered, and is read where it lies; no slot, nothing is copied.
struct Unshard {
  ParamBlock block;
  Slot slot;
  std::optional<int> from{};
  std::optional<Slot> staged{};
  bool in_place = false;
  friend bool operator==(const Unshard&, const Unshard&) = default;
};
/// Gives up the unsharded parameters of `block`: their slot may be reused. With `to`, every group of `to` neighbours on
/// the shard axis keeps a copy first, each rank one part of it (ZeRO++'s secondary partition, Wang et al. 2023).
struct Reshard {
  ParamBlock block;
  std::optional<int> to{};
  friend bool operator==(const Reshard&, const Reshard&) = default;
};
/// Runs the forward of one stage, or of all stages of a block where `stage` is absent. `keep`: what stays for backward;
/// with `input` that is what the block's first stage reads, and nothing of its other stages; with `kv_cache` what the
/// step after it reads.
struct Forward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  model::Keep keep = model::Keep::products;
  friend bool operator==(const Forward&, const Forward&) = default;
};
/// Runs the backward of one stage, or of all stages of a block in reverse where `stage` is absent.
/// `gradients` has one target for each parameter block that the stages write. The backward may be in two ops: `input`,
/// the gradient by the input, which can be summed over the tensor axis or sent on, and `weight`, which writes those by
/// the parameters. Between them wait `model::pending_tensors`; whole stages read no parameter values for `weight`.
enum class BackwardPart : std::uint8_t { whole, input, weight };
struct Backward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  std::vector<GradientTarget> gradients;
  BackwardPart part = BackwardPart::whole;
  friend bool operator==(const Backward&, const Backward&) = default;
};
/// Sums the gradient in `slot` over the shard axis; each rank keeps (`add`: adds to) its shard. `partial`: it goes to a
/// buffer of its own instead, because replicas are to be summed before it is added. `staged`: it waits there for its
/// way to the host instead. `in_place`: backwards wrote into the shard of the only rank; it is complete now.
struct ReduceScatter {
  ParamBlock block;
  Slot slot;
  bool add = false;
  bool partial = false;
  std::optional<Slot> staged{};
  bool in_place = false;
  friend bool operator==(const ReduceScatter&, const ReduceScatter&) = default;
};
/// Sums the gradient shard over the replicate axis, wherever it lives. `partial`: sums what a partial reduce-scatter
/// left, and adds it to the shard. `staged`: sums what waits there for its way to the host.
struct AllReduce {
  ParamBlock block;
  bool partial = false;
  std::optional<Slot> staged{};
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};
/// Runs the forward of one stage, or of all stages of a block, again before its backward, from the input that the
/// forward kept: leaves what the stages save. The last stage's output is not computed: nobody reads it.
struct Recompute {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

// What lives in host memory: optimizer state, and parameters with it.

/// Copies this rank's shard of `block`, in the compute dtype, from the host to the device: to where it lives there, or
/// to `staged`, from which the next unshard gathers.
struct Upload {
  ParamBlock block;
  std::optional<Slot> staged{};
  friend bool operator==(const Upload&, const Upload&) = default;
};
/// Copies the gradient shard that waits in `slot` to the host, or adds it to what is there.
struct OffloadGradient {
  ParamBlock block;
  Slot slot;
  bool add = false;
  friend bool operator==(const OffloadGradient&, const OffloadGradient&) = default;
};
/// Sums the squares of a gradient shard that lives on the host, for `ClipNorm`.
struct SumSquares {
  ParamBlock block;
  friend bool operator==(const SumSquares&, const SumSquares&) = default;
};

// What waits in host memory between forward and backward.

/// Copies what a block keeps to the host: tensors of at least `min_bytes`.
struct OffloadActivations {
  Block block;
  Microbatch microbatch;
  Bytes min_bytes;
  friend bool operator==(const OffloadActivations&, const OffloadActivations&) = default;
};
/// Frees what has been copied to the host.
struct DropActivations {
  Block block;
  Microbatch microbatch;
  friend bool operator==(const DropActivations&, const DropActivations&) = default;
};
/// Allocates its memory on the device again, for `ReloadActivations`. On the compute lane: what an earlier backward
/// frees is taken in the order of its work, so that no more is held than `trireme plan` says however far the host is
/// ahead.
struct AllocateActivations {
  Block block;
  Microbatch microbatch;
  friend bool operator==(const AllocateActivations&, const AllocateActivations&) = default;
};
/// Copies it back to the device.
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

// Pipeline parallelism. Edge e stands between chunks e and e + 1 of the model: the residual stream passes forward over
// it, its gradient backward. Buffers are slots of two rings, allocated once.

using Edge = StrongId<struct EdgeTag>;
/// Copies the stream behind a chunk, or the gradient before it, into a slot for sending.
struct Put {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  friend bool operator==(const Put&, const Put&) = default;
};
/// Sends what lies in `slot` to pipeline rank `peer`; ends when the peer has it.
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
/// Makes what lies in `slot` the stream before a chunk, or the gradient behind it; the slot is free.
struct Take {
  Edge edge;
  Microbatch microbatch;
  Phase phase = Phase::forward;
  Slot slot;
  friend bool operator==(const Take&, const Take&) = default;
};

using Op = std::variant<Unshard, Reshard, Forward, Backward, ReduceScatter, AllReduce, ClipNorm, Update, Recompute,
                        Upload, OffloadGradient, SumSquares, OffloadActivations, DropActivations, ReloadActivations,
                        Exchanged, Rebuild, AllReduceReplicated, Put, Send, Receive, Take, AllocateGradient,
                        FreeGradient, AllocateActivations>;

[[nodiscard]] Lane lane_of(const Op& op);

/// A list of ops, cyclic over steps: the last op is followed by the next step's first.
struct Schedule {
  int microbatches = 1;
  std::vector<Op> ops;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace trireme::schedule
