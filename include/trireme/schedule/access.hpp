// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

/// What each op reads and writes: the basis of `needs` and `verify`.
namespace trireme::schedule {

/// A thing that ops read and write. Which of the numbers mean something depends on the kind.
struct Resource {
  enum class Kind {
    parameter_slot,  ///< a, b: ring and index of an unsharded buffer
    gradient_slot,   ///< a, b: ring and index of an unsharded gradient buffer
    master_shard,    ///< a: parameter block; fp32 masters and optimizer state
    gradient_shard,  ///< a: parameter block
    partial_shard,   ///< one microbatch's gradient shard before its sum over the replicas
    group_copy,      ///< a: parameter block; this rank's part of the copy that its group keeps
    hidden,          ///< a: microbatch; the residual stream, or its gradient
    recomputed,      ///< a: microbatch; the residual stream of a forward that runs again
    branch,          ///< a: microbatch; what stands between the residual stream and a branch, or its gradient
    branch_again,    ///< a: microbatch; a branch's input once more, for the gradients of its weights
    vocabulary,      ///< a: microbatch; what the ranks of the tensor axis know of their parts of the vocabulary
    saved,           ///< a, b, c: block, stage, microbatch; what a stage keeps for its backward
    device_shard,    ///< a: parameter block; the copy on the device of a shard whose masters live on the host
    upload_slot,     ///< a, b: ring and index of a shard on its way to an unshard
    download_slot,   ///< a, b: ring and index of a gradient shard on its way to the host
    host_copy,       ///< a, b: block, microbatch; activations in host memory
    norm_part,       ///< a: parameter block; the sum of squares of a gradient on the host
    norm,            ///< the clip factor and the agreement to skip
  };
  Kind kind;
  int a = 0;
  int b = 0;
  int c = 0;
  friend auto operator<=>(const Resource&, const Resource&) = default;
};

[[nodiscard]] std::string to_text(const Resource& resource, const model::Model& model);

struct Access {
  std::vector<Resource> reads;
  std::vector<Resource> writes;
};

/// The accesses of every op of the schedule, in order. Where an op names a parameter block, the slot is that of the
/// block's latest unshard. Throws BugError when a block is read that was never unsharded.
[[nodiscard]] std::vector<Access> accesses(const Schedule& schedule, const model::Model& model);

/// Parameter blocks whose values the op reads: none for the backward of an embedding, which reads indices only.
[[nodiscard]] std::vector<ParamBlock> parameters_read(const Op& op, const model::Model& model);

/// What metrics and planner call a copy between device and host; empty for an op that is none.
[[nodiscard]] std::string_view copy_name(const Op& op);

/// The stage of an op that tensor parallelism cut: it reads and writes more than the residual stream. Null for others.
[[nodiscard]] const model::Stage* cut_stage(const model::Model& model, Block block, const std::optional<Stage>& stage);

/// The microbatch of a forward, recompute or backward; nothing for other ops.
[[nodiscard]] std::optional<Microbatch> computes(const Op& op);

/// Parameter blocks whose gradients the op writes.
[[nodiscard]] std::vector<ParamBlock> gradients_written(const Op& op, const model::Model& model);

/// The stages an op runs: [first, last).
struct StageRange {
  int first = 0;
  int last = 0;
};
[[nodiscard]] StageRange stages_of(const model::ComputeBlock& block, const std::optional<Stage>& stage);

}  // namespace trireme::schedule
