// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

/// Reads and writes of each op: the basis of `needs` and `verify`.
namespace trireme::schedule {

/// Resources that ops read and write, each with its identifying fields.
namespace resource {

/// An unsharded buffer.
struct ParameterSlot {
  Slot slot;
  friend auto operator<=>(const ParameterSlot&, const ParameterSlot&) = default;
};
/// An unsharded gradient buffer.
struct GradientSlot {
  Slot slot;
  friend auto operator<=>(const GradientSlot&, const GradientSlot&) = default;
};
/// Fp32 masters and optimizer state.
struct MasterShard {
  ParamBlock block;
  friend auto operator<=>(const MasterShard&, const MasterShard&) = default;
};
struct GradientShard {
  ParamBlock block;
  friend auto operator<=>(const GradientShard&, const GradientShard&) = default;
};
/// One microbatch's gradient shard before its sum over the replicas.
struct PartialShard {
  friend auto operator<=>(const PartialShard&, const PartialShard&) = default;
};
/// This rank's part of the copy that its group keeps.
struct GroupCopy {
  ParamBlock block;
  friend auto operator<=>(const GroupCopy&, const GroupCopy&) = default;
};
/// The residual stream, or its gradient.
struct Hidden {
  Microbatch m;
  friend auto operator<=>(const Hidden&, const Hidden&) = default;
};
/// The residual stream of a forward that runs again.
struct Recomputed {
  Microbatch m;
  friend auto operator<=>(const Recomputed&, const Recomputed&) = default;
};
/// A tensor between the residual stream and a branch, or its gradient.
struct Branch {
  Microbatch m;
  friend auto operator<=>(const Branch&, const Branch&) = default;
};
/// A rebuilt branch input, for the gradients of its weights.
struct BranchAgain {
  Microbatch m;
  friend auto operator<=>(const BranchAgain&, const BranchAgain&) = default;
};
/// Partial results of the tensor axis' ranks for their parts of the vocabulary.
struct Vocabulary {
  Microbatch m;
  friend auto operator<=>(const Vocabulary&, const Vocabulary&) = default;
};
/// Keys and values of whole sequences, or the gradients by them.
struct Keys {
  Microbatch m;
  friend auto operator<=>(const Keys&, const Keys&) = default;
};
/// Rows of tokens for experts, or the experts' outputs, or the gradients of either.
struct Rows {
  Microbatch m;
  friend auto operator<=>(const Rows&, const Rows&) = default;
};
/// Sums over the heads of a token, of this rank or of all: squares, or sums for the gradient of their norm.
struct Statistics {
  Microbatch m;
  friend auto operator<=>(const Statistics&, const Statistics&) = default;
};
/// Row counts sent to each expert of a block and received by those of this rank: from a forward to its backward.
struct Counts {
  Block block;
  Microbatch m;
  friend auto operator<=>(const Counts&, const Counts&) = default;
};
/// Tensors that a stage saves for its backward.
struct Saved {
  Block block;
  Stage stage;
  Microbatch m;
  friend auto operator<=>(const Saved&, const Saved&) = default;
};
/// The copy on the device of a shard whose masters live on the host.
struct DeviceShard {
  ParamBlock block;
  friend auto operator<=>(const DeviceShard&, const DeviceShard&) = default;
};
/// A shard on its way to an unshard.
struct UploadSlot {
  Slot slot;
  friend auto operator<=>(const UploadSlot&, const UploadSlot&) = default;
};
/// A gradient shard on its way to the host.
struct DownloadSlot {
  Slot slot;
  friend auto operator<=>(const DownloadSlot&, const DownloadSlot&) = default;
};
/// Activations in host memory.
struct HostCopy {
  Block block;
  Microbatch m;
  friend auto operator<=>(const HostCopy&, const HostCopy&) = default;
};
/// The sum of squares of a gradient on the host.
struct NormPart {
  ParamBlock block;
  friend auto operator<=>(const NormPart&, const NormPart&) = default;
};
/// A buffer on its way to another pipeline rank.
struct SendSlot {
  Slot slot;
  friend auto operator<=>(const SendSlot&, const SendSlot&) = default;
};
/// A buffer that another pipeline rank fills.
struct ReceiveSlot {
  Slot slot;
  friend auto operator<=>(const ReceiveSlot&, const ReceiveSlot&) = default;
};
/// This rank's pieces of matrices, on their way to owners and back.
struct MatrixPieces {
  int slot = 0;
  friend auto operator<=>(const MatrixPieces&, const MatrixPieces&) = default;
};
/// Matrices that this rank owns.
struct OwnedMatrices {
  int slot = 0;
  friend auto operator<=>(const OwnedMatrices&, const OwnedMatrices&) = default;
};
/// The clip factor and the agreement to skip.
struct Norm {
  friend auto operator<=>(const Norm&, const Norm&) = default;
};

}  // namespace resource

using Resource =
    std::variant<resource::ParameterSlot, resource::GradientSlot, resource::MasterShard, resource::GradientShard,
                 resource::PartialShard, resource::GroupCopy, resource::Hidden, resource::Recomputed, resource::Branch,
                 resource::BranchAgain, resource::Vocabulary, resource::Saved, resource::DeviceShard,
                 resource::UploadSlot, resource::DownloadSlot, resource::HostCopy, resource::NormPart,
                 resource::SendSlot, resource::ReceiveSlot, resource::Norm, resource::Keys, resource::Rows,
                 resource::Counts, resource::Statistics, resource::MatrixPieces, resource::OwnedMatrices>;

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

/// Name of a copy between device and host in metrics and planner; empty for other ops.
[[nodiscard]] std::string_view copy_name(const Op& op);

/// The stage of an op that tensor or context parallelism cut: it reads and writes more than the residual stream. Null
/// for others.
[[nodiscard]] const model::Stage* partitioned_stage(const model::Model& model, Block block,
                                                    const std::optional<Stage>& stage);

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
