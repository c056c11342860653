// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "executor/expert_rows.hpp"
#include "executor/matrices.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/experts.hpp"
#include "trireme/model/kv_cache.hpp"
#include "trireme/model/stage_work.hpp"
#include "trireme/nn/frame.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/team.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/schedule/exchange.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/store/activation_store.hpp"

namespace trireme::executor {

using nn::Frame, nn::Values;

/// The step of the compute lane. Accessed by that lane only; the tensor, context and expert lanes access the tensors
/// that they exchange.
struct StepState {
  StepInput input;
  StepResult result;
  timeline::Clock::time_point begin{};
  double waited_for_pipeline = 0;  ///< seconds until the norm
  std::vector<Values> values;      ///< by microbatch
  nn::Losses losses;
};

/// Runs the ops of a schedule on the tensors of one rank: one function per verb. Scheduling happens in the driver.
class Verbs {
 public:
  /// All arguments except links and optimizer must outlive this. lanes: null on CPUs.
  Verbs(const model::Model& model, const schedule::Schedule& schedule, store::ParameterStore& store,
        const Layers& layers, Links links, optimizer::OptimizerPlan optimizer, const Options& options,
        DeviceLanes* lanes);

  /// A step begins; a GPU sums its loss in `device_loss`, if defined.
  void begin(const StepInput& input, const at::Tensor& device_loss);
  /// Runs one op, on the thread and stream of its lane.
  void run_op(int op, std::int64_t step);

  [[nodiscard]] StepState& state() { return state_; }
  [[nodiscard]] HostWork host_work() const {
    const std::scoped_lock lock(host_work_mutex_);
    return host_work_;
  }

 private:
  void run(const schedule::Unshard& op);
  void run(const schedule::Reshard& op, const Operands& operands);
  void run(const schedule::Forward& op, const Operands& operands);
  void run(const schedule::Recompute& op, const Operands& operands);
  void run(const schedule::Backward& op, const Operands& operands);
  void run(const schedule::ReduceScatter& op);
  void run(const schedule::AllReduce& op);
  void run(const schedule::Exchanged& op);
  void run(const schedule::Rebuild& op, const Operands& operands);
  void run(const schedule::AllReduceReplicated& op);
  void run(const schedule::Put& op);
  void run(const schedule::Send& op);
  void run(const schedule::Receive& op);
  void run(const schedule::Take& op);
  void run(const schedule::ClipNorm& op);
  /// On a GPU: adds the waits of the compute lane's stream since the last step to the result.
  void record_idle();
  /// Sums the first `count` of `sums` over the pipeline axis, if there is one, and records how long its ranks waited.
  void sum_over_pipeline(std::array<double, 3>& sums, std::size_t count);
  void run(const schedule::Update& op);
  void run(const schedule::PrepareMatrices& op);
  void run(const schedule::GatherMatrices& op);
  void run(const schedule::Orthogonalize& op);
  void run(const schedule::ScatterMatrices& op);
  void run(const schedule::AllocateGradient& op) { store_.allocate_gradient(op.block, options_.poison); }
  void run(const schedule::FreeGradient& op);
  // Copies return their bytes.
  Bytes run(const schedule::Upload& op);
  Bytes run(const schedule::OffloadGradient& op);
  void run(const schedule::SumSquares& op);
  Bytes run(const schedule::OffloadActivations& op);
  void run(const schedule::DropActivations& op);
  void run(const schedule::AllocateActivations& op);
  Bytes run(const schedule::ReloadActivations& op);

  /// Whether a forward keeps the keys and values of a stage for the next step.
  [[nodiscard]] bool caches(const schedule::Forward& op, const model::Stage& stage) const {
    return op.keep == model::Keep::kv_cache && model::has_kv_cache(stage.kind, model_.held);
  }
  /// The ops that compute, one stage at a time.
  void forward_stage(const schedule::Forward& op, const StageOperands& of, nn::Mode mode);
  void recompute_stage(const schedule::Recompute& op, const StageOperands& of);
  void backward_stage(const schedule::Backward& op, const StageOperands& of, bool weights_wait);
  /// Calls `use` with the tensors that a stage keeps in its backward; they stay kept.
  void with_kept(Block block, Stage stage, Microbatch m, const std::function<void(nn::Kept&)>& use);
  // The steps of an exchange: the tensor that it sends, in the layout of its collective; the collective; the layout of
  // the stages; storing the result.
  [[nodiscard]] at::Tensor outgoing(const schedule::Exchanged& op, const Frame& now);
  [[nodiscard]] at::Tensor packed(const schedule::Exchanged& op, at::Tensor from);
  [[nodiscard]] at::Tensor moved(const schedule::ExchangeRow& row, at::Tensor sent) const;
  [[nodiscard]] at::Tensor unpacked(const schedule::Exchanged& op, at::Tensor arrived);
  void deliver(const schedule::Exchanged& op, const Frame& now, at::Tensor result);
  /// Tensors that the stage of an exchange saved; they stay saved.
  [[nodiscard]] std::vector<at::Tensor> saved_by(const schedule::Exchanged& op);
  /// Widths of q, k and v among the columns that ranks exchange for heads; of one rank of the tensor axis.
  [[nodiscard]] std::array<std::int64_t, 3> head_sections(const schedule::Exchanged& op) const;
  /// The loss of the head, or its joined logits, from the statistics of all ranks' parts of the vocabulary.
  void finish_vocabulary(const schedule::Exchanged& op, const Frame& now, const at::Tensor& of_ranks);
  /// The exchanges of the expert lane, whose sizes are known at run time.
  void exchange_of_experts(const schedule::Exchanged& op);
  void exchange_rows(const schedule::Exchanged& op, comm::Collectives& experts);
  [[nodiscard]] RowCounts& counts(Block block, Microbatch m);
  /// Begins of the rows of each of this rank's experts.
  [[nodiscard]] std::vector<std::int64_t> held_rows(Block block, Microbatch m);
  /// Tokens on this rank's residual stream.
  [[nodiscard]] std::int64_t stream_tokens(Microbatch m) const;
  /// Rows between the stages of a layer of experts, or those of one stage: of a whole layer, or in a recompute.
  [[nodiscard]] nn::Routing& routing_for(const StageOperands& of, Block block, Microbatch m, schedule::Phase phase,
                                         nn::Routing& of_stage);
  /// Records the choice of a router in forward: rows for each expert, and loads that its backward reads.
  void note_choice(const schedule::Forward& op, const StageOperands& of, nn::Kept& kept, const nn::Routing& routing);
  /// Records the numbers of moved rows in the step's result.
  void record_rows();
  [[nodiscard]] const model::Stage& stage_of(const schedule::Exchanged& op) const {
    return model_[op.block].stages[static_cast<std::size_t>(op.segment.value)];
  }
  /// Stores a sum over the tensor axis: in forward and recompute added to the residual stream, unless it is normed
  /// first.
  void put_sum(const schedule::Exchanged& op, const Frame& now, const at::Tensor& sum);
  /// Squares of a block's gradient shard, of the elements that this rank counts in the norm.
  double counted_squares(ParamBlock block, const optim::Team& team);
  /// On a GPU: squares of a block's gradient shard, launched after the op that writes it last.
  void square_on_device(ParamBlock block);
  /// Sums a gradient shard over the two pipeline ranks that hold its block.
  void sum_tied(ParamBlock block);
  void sum_ranges(ParamBlock block, const std::vector<shard::Range>& ranges, mesh::Group group);
  /// Sums the counts of layers with experts over the ranks.
  void sum_experts();
  /// Steps the correction biases of this rank's routers by the loads of the global batch; masters follow in updates.
  void step_choice_biases();
  /// The microbatch for a stage: for a router with its correction bias, if it
  /// has one, and in backward with the rows of each expert, the loads of
  /// sequences that several ranks divide, and which of their tokens are here.
  [[nodiscard]] nn::Microbatch microbatch_for(const StageOperands& of, Block block, Microbatch m);
  /// The correction bias of a router, where the step computes; on a GPU copied once a step.
  [[nodiscard]] at::Tensor choice_bias(ParamBlock block);
  /// Adds the loss summed on a GPU to the loss of the step; waits for it.
  void fetch_loss();
  /// The gradients' squares on this rank, its cross-entropy and its z-loss; returns when the compute lane has them.
  [[nodiscard]] std::array<double, 3> squares_and_losses();
  /// Norms of blocks from `block_squares_`.
  void sum_blocks();
  [[nodiscard]] optim::AdamWStep update_numbers() const;
  [[nodiscard]] optim::MuonStep muon_numbers() const;
  void update_on_device(ParamBlock block);
  void update_on_cpu(ParamBlock block, const optim::Team& team);
  /// Applies the orthogonalized matrices in `slot` to a block's masters.
  void apply_matrices(ParamBlock block, int slot, const optim::Team& team);
  /// to (+)= from, out of the GPU's memory into the host's, on the device-to-host lane.
  void offload_from_gpu(const at::Tensor& from, const at::Tensor& to, bool add);
  /// Ends a forward that is not of a training step: `output` is the head's result.
  void finish_head(Microbatch m, at::Tensor output);
  /// Finishes an evaluation's loss in its last op.
  void finish_evaluation(Microbatch m);
  /// Stores the tensors that a stage saved, charged to activations.
  void keep(const store::ActivationStore::Key& key, std::vector<at::Tensor> tensors);
  [[nodiscard]] const optim::Team& team(bool on_host) const {
    return on_host && options_.lane_threads ? host_team_ : compute_team_;
  }
  [[nodiscard]] DType reduce_wire() const {
    return options_.reduce == config::Reduce::fp32 ? DType::fp32 : DType::bf16;
  }
  /// The collectives of a group on a lane, for tensors in the same memory as `tensor`.
  [[nodiscard]] comm::Collectives& link(mesh::Group group, schedule::Lane lane, const at::Tensor& tensor) const {
    return links_.at({group, lane, tensor.is_cpu() ? device::Space::host : device::Space::device});
  }
  [[nodiscard]] comm::Collectives& link(mesh::Group group, schedule::Lane lane) const {
    return links_.at({group, lane});
  }
  [[nodiscard]] const nn::Layer& layer(Block block, Stage stage) const;
  template <class Verb>
  [[nodiscard]] Frame::OnEnd on_end(const Verb& op) const {
    if (!options_.on_tensors) return {};
    return [this, op](schedule::TensorSet used) { options_.on_tensors(op, used); };
  }
  /// The tensors that an op on a sharded stage may use.
  template <class Verb>
  [[nodiscard]] Frame frame(const Verb& op, schedule::Phase phase) {
    return {values(op.microbatch), schedule::tensors_of(op, model_), phase, on_end(op)};
  }
  /// The tensors that one stage of an op may use.
  template <class Verb>
  [[nodiscard]] schedule::TensorAccess tensors_of(const Verb& op, Stage stage) const {
    if constexpr (requires { schedule::tensors_of(op, model_, stage); })
      return schedule::tensors_of(op, model_, stage);
    else
      return schedule::tensors_of(op, model_);
  }
  /// Calls `use` with the code of one stage of an op and its frame; returns the losses that it computes. of_stage: rows
  /// that no other op uses.
  template <class Verb, class Use>
  nn::Losses with_frame(const Verb& op, const StageOperands& of, schedule::Phase phase, nn::Kept& kept, nn::Mode mode,
                        nn::Routing& of_stage, const Use& use) {
    nn::Routing& routing = routing_for(of, op.block, op.microbatch, phase, of_stage);
    const nn::Microbatch batch = microbatch_for(of, op.block, op.microbatch);
    nn::Losses losses;
    nn::StageFrame f(values(op.microbatch), kept, {of.parameters, of.gradients, batch, mode, routing, losses},
                     tensors_of(op, of.stage), phase, is_listed(op) ? on_end(op) : Frame::OnEnd());
    use(*layer(op.block, of.stage).code, f);
    return losses;
  }
  /// Whether an op is on one sharded stage, whose tensors the schedule lists.
  template <class Verb>
  [[nodiscard]] bool is_listed(const Verb& op) const {
    if constexpr (requires { op.segment; })
      return true;
    else
      return schedule::partitioned_stage(model_, op.block, op.stage) != nullptr;
  }
  [[nodiscard]] Values& values(Microbatch m) { return state_.values[static_cast<std::size_t>(m.value)]; }
  [[nodiscard]] const nn::Microbatch& microbatch(Microbatch m) const {
    return state_.input.microbatches[static_cast<std::size_t>(m.value)];
  }

  const model::Model& model_;
  const schedule::Schedule& schedule_;
  store::ParameterStore& store_;
  const Layers& layers_;
  Links links_;
  optimizer::OptimizerPlan optimizer_;
  const Options& options_;
  DeviceLanes* lanes_;
  Program program_;
  int clip_op_ = 0;                                                 ///< all after it is a step's tail
  std::vector<std::vector<optimizer::UpdateRange>> update_ranges_;  ///< by parameter block
  std::vector<shard::CopiedRanges> copied_;                         ///< by parameter block
  std::vector<std::vector<shard::Range>> counted_;                  ///< in the norm, by parameter block
  std::optional<MatrixExchange> matrices_;                          ///< with Muon
  store::ActivationStore activations_;
  std::vector<RowCounts> counts_;                   ///< by compute block and microbatch
  std::map<int, at::Tensor> device_choice_biases_;  ///< by parameter block, of this step
  at::Tensor landing_;  ///< on a GPU: where gradients arrive in the host's memory that are added there
  StepState state_;

  /// Decision of the norm and numbers of the step: read by updates, which may run while the next step begins.
  struct Decision {
    bool skipped = false;
    double lr = 0;
    std::int64_t count = 1;
    double gradient_factor = 1;
  };
  Decision decision_;
  std::vector<double> squares_;        ///< by parameter block, of gradients on the host
  std::vector<double> block_squares_;  ///< of this rank, by parameter block of the whole model; Options::block_names
  std::vector<std::size_t> block_places_;  ///< by parameter block: its index among those
  std::vector<std::optional<ParamBlock>>
      completes_;              ///< by op, on a GPU: the block whose gradient nothing changes after it
  at::Tensor device_squares_;  ///< fp64, by parameter block
  optim::Team compute_team_;
  optim::Team host_team_;
  mutable std::mutex host_work_mutex_;
  HostWork host_work_;
};

}  // namespace trireme::executor
