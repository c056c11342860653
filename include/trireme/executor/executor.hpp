// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/device/graphs.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/executor/device_lanes.hpp"
#include "trireme/executor/driver.hpp"
#include "trireme/executor/links.hpp"
#include "trireme/executor/program.hpp"
#include "trireme/nn/partition.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/decay.hpp"
#include "trireme/optim/team.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/shard/copies.hpp"
#include "trireme/store/activation_store.hpp"
#include "trireme/store/parameter_store.hpp"
#include "trireme/timeline/timeline.hpp"

namespace trireme::executor {

/// The layers of a model by compute block and stage. device: where their tensors will lie.
using Layers = std::vector<std::vector<nn::Layer>>;
[[nodiscard]] Layers make_layers(const model::Model& model, std::int64_t max_seq_len, DType compute,
                                 std::int64_t loss_chunk_tokens, at::Device device = at::kCPU);

struct Options {
  /// Gather and reduce lanes have threads of their own. False: everything runs in the schedule's order on the calling
  /// thread, for ranks with one core.
  bool lane_threads = true;
  at::Device device = at::kCPU;  ///< where the store's device buffers lie; lanes are streams of a GPU
  /// Collectives begin in the schedule's order on this rank, whatever lane they are of: so that all ranks launch them
  /// on their GPUs alike, where one that is launched early could keep another from running.
  bool ordered_collectives = false;
  int host_threads = 1;  ///< of the host lane: what updates of parameters on the host run on, beside the compute thread
  nn::Mode mode = nn::Mode::train;
  bool first_replica = true;  ///< counts in the norm: replicas hold the same gradients
  /// How gradients are summed. bf16_wire: terms travel as bf16 and are summed in fp32. bf16: every sum is rounded to
  /// bf16, too.
  config::Reduce reduce = config::Reduce::fp32;
  /// What the compute lane launches is recorded in the second step and launched as graphs from then on (`segments`).
  /// Null: op by op. Needs uncut layers and activations that stay.
  std::shared_ptr<device::Graphs> graphs{};
  /// Fills a slot with NaN when its block is given up: a test that nothing reads it later.
  bool poison = false;
  bool record_timeline = false;
  /// Called on the thread where an op threw. The default ends the job: other ranks wait for this one.
  std::function<void()> on_exception{};
  /// Told what begins, on the thread where it begins: feeds the watchdog.
  std::function<void(int op, std::int64_t step)> on_op{};
  /// Told that a lane has ended its last op of a step, on its thread and before anything that waits for that op goes
  /// on.
  std::function<void(schedule::Lane lane, std::int64_t step)> on_lane_end{};
  /// Told of every copy between device and host, on the thread that made it. What is copied behind a step's clipping
  /// counts to the next step, which waits for it: all of a step's copies are told before the step ends.
  std::function<void(std::string_view copy, Bytes bytes, std::int64_t step)> on_copy{};
  /// What lanes wait for, instead of `schedule::needs`: tests leave edges out and see what goes wrong.
  std::optional<std::vector<schedule::Need>> needs{};
};

/// What one step needs besides the schedule.
struct StepInput {
  std::span<const nn::Microbatch> microbatches;
  double lr = 0;
  std::int64_t updates = 0;  ///< applied before this step: Adam's count
};

/// What the host lane has done.
struct HostWork {
  double seconds = 0;  ///< in updates
  Bytes bytes;         ///< that those read and wrote
};

struct StepResult {
  double loss = 0;       ///< cross-entropy, mean over the counted targets of the global batch
  double z_loss = 0;     ///< weighted, mean alike: training minimises the sum of both
  double grad_norm = 0;  ///< global L2 norm before clipping
  bool skipped = false;  ///< loss or norm was not finite: nothing was updated, on any rank
  double exposed_seconds =
      0;  ///< compute lane without work: waiting for communication, or doing it where there are no lane threads
  at::Tensor logits;  ///< infer: [B, vocab] fp32
};

/// Runs a schedule: one small function per verb, called by a `Driver`, which decides when. The calling thread is the
/// compute lane.
class Executor {
 public:
  /// model, store and links outlive the executor. Every rank of the links' groups has an executor of the same schedule.
  Executor(const model::Model& model, schedule::Schedule schedule, store::ParameterStore& store, const Layers& layers,
           Links links, config::Optimizer optimizer, Options options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Runs one step. Collective over the links' groups. `last`: no step follows before the executor is used otherwise
  /// (checkpoint, evaluation, end), so all lanes come to rest; else gather and reduce lanes run ahead into the next
  /// step as far as needs allow.
  StepResult run(const StepInput& input, bool last);
  /// Waits for the updates of the last step, which the host lane may still be at: masters and moments then hold still
  /// until the next step. Other lanes run on.
  void finish_updates();
  /// Whether lanes have to rest after the next step, `last`: the one after it records graphs.
  [[nodiscard]] bool must_rest() const { return options_.graphs && step_ + 2 == recording_step; }

  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] HostWork host_work() const {
    const std::scoped_lock lock(host_work_mutex_);
    return host_work_;
  }
  [[nodiscard]] timeline::Timeline& timeline() { return timeline_; }

 private:
  /// What stands between the ops of one microbatch, each as `schedule::Resource` names it: two microbatches in flight
  /// share none of it.
  struct InFlight {
    at::Tensor hidden;        ///< the residual stream, or its gradient
    at::Tensor recomputed;    ///< the residual stream of a forward that runs again
    at::Tensor branch;        ///< between the residual stream and a branch, or its gradient
    at::Tensor branch_again;  ///< a branch's input once more
    at::Tensor logits;        ///< of the first chunk of tokens, between the head's forward and backward
    at::Tensor vocabulary;    ///< statistics of the logits, then their softmax: maximum and sum [B*T, 2]
  };

  /// Runs ops of one lane that other lanes know as one, on that lane's thread and stream.
  void perform(std::span<const int> ops, std::int64_t step);
  void run_verb(int op, std::int64_t step);

  /// The first step finds what its kernels need (plans, workspaces); the next one is recorded.
  static constexpr std::int64_t recording_step = 1;
  /// The segment that op `op` is in, to be launched as one; null where ops are launched by themselves.
  [[nodiscard]] const std::vector<int>* segment_of(int op, std::int64_t step) const;
  void launch_graph(const std::vector<int>& segment, std::int64_t step);
  /// The same tokens in tensors that are there as long as the graphs, which have read them.
  [[nodiscard]] std::span<const nn::Microbatch> kept(std::span<const nn::Microbatch> microbatches);

  void run(const schedule::Unshard& op);
  void run(const schedule::Reshard& op, const Operands& operands);
  void run(const schedule::Forward& op, const Operands& operands);
  void run(const schedule::Recompute& op, const Operands& operands);
  void run(const schedule::Backward& op, const Operands& operands);
  void run(const schedule::ReduceScatter& op);
  void run(const schedule::AllReduce& op);
  void run(const schedule::GatherSequence& op);
  void run(const schedule::ScatterSequence& op);
  void run(const schedule::AllReduceActivation& op);
  void run(const schedule::GatherVocabulary& op);
  void run(const schedule::RecomputeNorm& op, const Operands& operands);
  void run(const schedule::AllReduceReplicated& op);
  void run(const schedule::ClipNorm& op);
  void run(const schedule::Update& op);
  // Copies return their bytes.
  Bytes run(const schedule::Upload& op);
  Bytes run(const schedule::OffloadGradient& op);
  void run(const schedule::SumSquares& op);
  Bytes run(const schedule::OffloadActivations& op);
  void run(const schedule::DropActivations& op);
  Bytes run(const schedule::ReloadActivations& op);

  /// One stage that tensor parallelism cut.
  void forward_partitioned(const schedule::Forward& op, const model::Stage& stage, const StageOperands& operands,
                           nn::Mode mode);
  void recompute_partitioned(const schedule::Recompute& op, const model::Stage& stage, const StageOperands& operands);
  void backward_partitioned(const schedule::Backward& op, const model::Stage& stage, const StageOperands& operands);
  /// The sum over the tensor axis of `of.branch`: forward adds it to the residual stream, or to that which runs again.
  static void put_sum(const at::Tensor& sum, schedule::Phase phase, InFlight& of);
  /// Squares of a block's gradient shard, of the elements that this rank counts in the norm.
  double counted_squares(ParamBlock block, const optim::Team& team);
  void sum_ranges(ParamBlock block, const std::vector<shard::Range>& ranges, mesh::Group group);
  /// Adds to the loss of the step what a stage returned.
  void add_loss(const nn::Result& result);
  /// Adds to the loss of the step what a GPU has summed; waits for it.
  void fetch_loss();
  /// The gradients' squares on this rank, its cross-entropy and its z-loss; returns when the compute lane knows them.
  [[nodiscard]] std::array<double, 3> squares_and_losses();
  void update_on_device(ParamBlock block);
  /// to (+)= from, out of the GPU's memory into the host's, on the device-to-host lane.
  void offload_from_gpu(const at::Tensor& from, const at::Tensor& to, bool add);
  /// The loss of an evaluation, once its last op knows it.
  void finish_evaluation(Microbatch m);
  /// Keeps what a stage saved, charged to activations.
  void keep(const store::ActivationStore::Key& key, std::vector<at::Tensor> tensors);
  [[nodiscard]] const optim::Team& team(bool on_host) const {
    return on_host && options_.lane_threads ? host_team_ : compute_team_;
  }
  [[nodiscard]] DType reduce_wire() const {
    return options_.reduce == config::Reduce::fp32 ? DType::fp32 : DType::bf16;
  }
  /// The collectives of a group on a lane, for tensors in the memory that `tensor` lies in.
  [[nodiscard]] comm::Collectives& link(mesh::Group group, schedule::Lane lane, const at::Tensor& tensor) const {
    return links_.at({group, lane, tensor.is_cpu() ? device::Space::host : device::Space::device});
  }
  [[nodiscard]] comm::Collectives& link(mesh::Group group, schedule::Lane lane) const {
    return links_.at({group, lane});
  }
  [[nodiscard]] const nn::Layer& layer(Block block, Stage stage) const;
  [[nodiscard]] InFlight& in_flight(Microbatch m) { return in_flight_[static_cast<std::size_t>(m.value)]; }
  [[nodiscard]] const nn::Microbatch& microbatch(Microbatch m) const {
    return input_.microbatches[static_cast<std::size_t>(m.value)];
  }

  const model::Model& model_;
  schedule::Schedule schedule_;
  store::ParameterStore& store_;
  const Layers& layers_;
  Links links_;
  config::Optimizer optimizer_;
  Options options_;
  Program program_;
  std::vector<std::vector<optim::DecayRange>> decay_;  ///< by parameter block
  std::vector<shard::CopiedRanges> copied_;            ///< by parameter block
  std::vector<std::vector<shard::Range>> counted_;     ///< in the norm, by parameter block
  int clip_op_ = 0;                                    ///< all after it is a step's tail
  std::vector<int> updates_;                           ///< the Update ops
  store::ActivationStore activations_;
  std::optional<DeviceLanes> device_lanes_;  ///< on a GPU
  timeline::Timeline timeline_;

  // The step that the compute lane is in; only that lane touches these, and the tensor lane those that it exchanges.
  std::int64_t step_ = -1;
  StepInput input_;
  StepResult result_;
  std::vector<InFlight> in_flight_;  ///< by microbatch
  kernels::LossSums loss_;
  bool rested_ = true;      ///< no lane has run ahead into the step
  at::Tensor device_loss_;  ///< on a GPU instead: fp64 [2], undefined while there is none
  at::Tensor landing_;      ///< on a GPU: where gradients arrive in the host's memory that are added there

  // Where options_.graphs are; of the compute lane alone.
  std::vector<std::vector<int>> segments_;
  std::vector<int> segment_of_;               ///< by op; -1: launched by itself
  std::vector<int> graph_of_;                 ///< by segment; -1: not recorded yet
  std::vector<nn::Microbatch> microbatches_;  ///< what the graphs read
  at::Tensor graphs_loss_;                    ///< where they sum the loss on a GPU
  device::Charge graphs_memory_;

  /// What the norm decided, and the numbers of the step: read by updates, which may run while the next step begins.
  struct Decision {
    bool skipped = false;
    optim::AdamWStep numbers{};
  };
  Decision decision_;
  std::vector<double> squares_;  ///< by parameter block, of gradients on the host
  optim::Team compute_team_;
  optim::Team host_team_;
  mutable std::mutex host_work_mutex_;
  HostWork host_work_;

  std::optional<Driver> driver_;  ///< last: its lanes end before what they use
};

}  // namespace trireme::executor
