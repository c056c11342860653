// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "trireme/base/ids.hpp"
#include "trireme/model/activations.hpp"

/// One optimizer step as a value: the verbs. One struct a verb, only its own fields.
namespace trireme::schedule {

/// A buffer of a ring: `ring` groups parameter blocks of the same layout, `index` is the buffer in it.
struct Slot {
  int ring = 0;
  int index = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// Where a backward puts the gradient of one parameter block, and whether it adds to what is there.
struct GradientTarget {
  ParamBlock block;
  Slot slot;
  bool add = false;
  friend bool operator==(const GradientTarget&, const GradientTarget&) = default;
};

/// Gathers the parameters of `block` into `slot`: over the shard axis, or over groups of `from` neighbours out of the
/// copies that a `Reshard` to the same groups left.
struct Unshard {
  ParamBlock block;
  Slot slot;
  std::optional<int> from{};
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
/// with `input` that is what the block's first stage reads, and nothing of its other stages.
struct Forward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  model::Keep keep = model::Keep::products;
  friend bool operator==(const Forward&, const Forward&) = default;
};
/// Runs the backward of one stage, or of all stages of a block in reverse where `stage` is absent.
/// `gradients` has one target for each parameter block that the stages write.
struct Backward {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  std::vector<GradientTarget> gradients;
  friend bool operator==(const Backward&, const Backward&) = default;
};
/// Sums the gradient in `slot` over the shard axis; each rank keeps (`add`: adds to) its shard. `partial`: it goes to a
/// buffer of its own instead, because replicas are to be summed before it is added.
struct ReduceScatter {
  ParamBlock block;
  Slot slot;
  bool add = false;
  bool partial = false;
  friend bool operator==(const ReduceScatter&, const ReduceScatter&) = default;
};
/// Sums the gradient shard over the replicate axis. `partial`: sums what a partial reduce-scatter left, and adds it to
/// the shard.
struct AllReduce {
  ParamBlock block;
  bool partial = false;
  friend bool operator==(const AllReduce&, const AllReduce&) = default;
};
/// Computes the global gradient norm, the clip factor, and the step's loss; agrees whether the step is skipped.
struct ClipNorm {
  friend bool operator==(const ClipNorm&, const ClipNorm&) = default;
};
/// Applies the optimizer to this rank's shard of `block`.
struct Update {
  ParamBlock block;
  friend bool operator==(const Update&, const Update&) = default;
};

/// Runs the forward of one stage, or of all stages of a block, again before its backward, from the input that the
/// forward kept: leaves what the stages save. The last stage's output is not computed: nobody reads it.
struct Recompute {
  Block block;
  std::optional<Stage> stage;
  Microbatch microbatch;
  friend bool operator==(const Recompute&, const Recompute&) = default;
};

using Op = std::variant<Unshard, Reshard, Forward, Backward, ReduceScatter, AllReduce, ClipNorm, Update, Recompute>;

/// Where an op runs: ops of one lane run one after another, in the schedule's order, on every rank.
enum class Lane : std::uint8_t { compute, gather, reduce };
inline constexpr int lanes = 3;

[[nodiscard]] Lane lane_of(const Op& op);

/// A list of ops, cyclic over steps: the last op is followed by the next step's first.
struct Schedule {
  int microbatches = 1;
  std::vector<Op> ops;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

}  // namespace trireme::schedule
