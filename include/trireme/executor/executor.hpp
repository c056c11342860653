// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/device/graphs.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/executor/device_lanes.hpp"
#include "trireme/executor/driver.hpp"
#include "trireme/executor/links.hpp"
#include "trireme/executor/program.hpp"
#include "trireme/nn/frame.hpp"
#include "trireme/optimizer/spikes.hpp"
#include "trireme/schedule/op.hpp"
#include "trireme/schedule/stage_access.hpp"
#include "trireme/store/parameter_store.hpp"
#include "trireme/timeline/timeline.hpp"

namespace trireme::executor {

/// The layers of a model by compute block and stage. device: of their tensors.
using Layers = std::vector<std::vector<nn::Layer>>;
[[nodiscard]] Layers make_layers(const model::Model& model, std::int64_t max_seq_len, std::int64_t loss_chunk_tokens,
                                 at::Device device = at::kCPU);

struct Options {
  /// Gather and reduce lanes have separate threads. False: everything runs in the schedule's order on the calling
  /// thread, for ranks with one core.
  bool lane_threads = true;
  at::Device device = at::kCPU;  ///< of the store's device buffers; lanes are streams of a GPU
  /// Collectives of all lanes begin in the schedule's order on this rank, so that all ranks launch them on their GPUs
  /// in the same order: a collective launched early could keep another one from running.
  bool ordered_collectives = false;
  int host_threads = 1;  ///< of the host lane: for updates on the host, concurrent with the compute thread
  nn::Mode mode = nn::Mode::train;
  bool first_replica = true;        ///< counts in the norm: replicas hold the same gradients
  bool first_pipeline_rank = true;  ///< counts the parts of the norm that two pipeline ranks hold
  /// Precision of gradient sums. bf16_wire: terms are sent as bf16 and summed in fp32. bf16: every sum is also rounded
  /// to bf16.
  config::Reduce reduce = config::Reduce::fp32;
  double balance_bias_rate = 0;  ///< of the correction biases of routers, by the loads of a step
  /// Parameter blocks of the whole model, for their gradient norms. Empty: only the norm over all is computed.
  std::vector<std::string> block_names{};
  /// Records the launches of the compute lane as graphs in the second step, and replays them in later ones
  /// (`segments`). Null: launches op by op. Requires uncut layers and no activation offload.
  std::shared_ptr<device::Graphs> graphs{};
  /// Fills a slot with NaN when its block is resharded: a test that nothing reads it later.
  bool poison = false;
  bool record_timeline = false;
  /// Called on the thread where an op threw. The default ends the job: other ranks wait for this one.
  std::function<void()> on_exception{};
  /// Called when an op begins, on its thread: feeds the watchdog.
  std::function<void(int op, std::int64_t step)> on_op{};
  /// Called when a lane has finished its last op of a
  /// step, on its thread, before dependent ops continue.
  std::function<void(schedule::Lane lane, std::int64_t step)> on_lane_end{};
  /// Called for every copy between device and host, on the thread that made it. Copies after a step's clipping count in
  /// the next step, which waits for them: all of a step's copies are reported before it ends.
  std::function<void(std::string_view copy, Bytes bytes, std::int64_t step)> on_copy{};
  /// Receives the tensors that an op on a sharded stage has used, at its end and on its thread.
  std::function<void(const schedule::Op& op, schedule::TensorSet used)> on_tensors{};
  /// Replaces `schedule::needs`: tests remove edges to provoke races.
  std::optional<std::vector<schedule::Need>> needs{};
};

/// Inputs of one step.
struct StepInput {
  std::span<const nn::Microbatch> microbatches;
  double lr = 0;
  std::int64_t updates = 0;  ///< applied before this step: Adam's count
  /// Some target of the global batch counts, the same on all ranks. False: there is no loss, and nothing is updated.
  bool counts = true;
  /// Steps before this one, equal on all ranks: a spike among them is skipped. Null: none is.
  const optimizer::SpikeWindow* spikes = nullptr;
};

/// Work of the host lane.
struct HostWork {
  double seconds = 0;  ///< in updates
  Bytes bytes;         ///< that those read and wrote
};

/// Numbers of a microbatch's rows: those of this rank's experts, and those exchanged with other ranks.
struct RowsMoved {
  Block block;
  Microbatch microbatch;
  std::int64_t received = 0;  ///< those from itself among them
  std::int64_t sent = 0;      ///< to other ranks
  std::int64_t fetched = 0;   ///< from other ranks
};

struct StepResult {
  double loss = 0;       ///< cross-entropy, mean over the counted targets of the global batch; NaN without any
  double own_loss = 0;   ///< of a forward in Mode::evaluate: the sum of this rank's microbatch alone
  double z_loss = 0;     ///< weighted, mean like `loss`: training minimises the sum of both
  double grad_norm = 0;  ///< global L2 norm before clipping
  double balance_loss = 0, router_z_loss = 0;  ///< weighted: of layers with experts
  /// By layer of the whole model and expert: tokens of the step, over all ranks. Empty without experts, and so are
  /// those of dense layers.
  std::vector<std::vector<std::int64_t>> expert_tokens{};
  std::vector<RowsMoved> expert_rows{};  ///< with mesh.expert > 1: of this rank, by block and microbatch
  /// Global L2 norms before clipping by parameter block of the whole model; empty without Options::block_names.
  std::vector<double> block_grad_norms{};
  /// Nothing was updated, on any rank: loss or norm was not finite or a spike, or no target counted.
  bool skipped = false;
  bool without_targets = false;  ///< no target counted
  bool spike = false;            ///< loss or norm was a spike among those of StepInput::spikes
  /// Compute lane without work: waiting for communication, or doing it if there are no lane threads.
  double exposed_seconds = 0;
  double pipeline_wait_seconds = 0;  ///< the same of messages between pipeline ranks; not in `exposed_seconds`
  /// Part of the step up to its norm in which pipeline ranks waited for each other, mean over them; with a pipeline.
  std::optional<double> pipeline_bubble{};
  at::Tensor logits;  ///< infer: [B, vocab] fp32
};

class RecordedGraphs;
class Verbs;

/// Runs a schedule: a `Driver` decides when an op runs, `Verbs` runs it on state that is kept by microbatch, and
/// `RecordedGraphs` launches sequences of ops as one. The calling thread is the compute lane.
class Executor {
 public:
  /// model, store and links outlive the executor. Every rank of the links' groups has an executor of the same schedule.
  Executor(const model::Model& model, schedule::Schedule schedule, store::ParameterStore& store, const Layers& layers,
           Links links, optimizer::OptimizerPlan optimizer, Options options);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Runs one step. Collective over the links' groups. `last`: another use of the executor follows (checkpoint,
  /// evaluation, end), so all lanes become idle; otherwise gather and reduce lanes run ahead into the next step as far
  /// as needs allow.
  StepResult run(const StepInput& input, bool last);
  /// Waits for the updates of the last step, which the host lane may still be at: masters and moments then hold still
  /// until the next step. Other lanes run on.
  void finish_updates();
  /// Whether lanes have to be idle after the next step, `last`: the one after it records graphs.
  [[nodiscard]] bool must_rest() const;

  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] HostWork host_work() const;
  [[nodiscard]] timeline::Timeline& timeline() { return timeline_; }

 private:
  /// Runs ops of one lane, which count as one op for other lanes, on that lane's thread and stream.
  void perform(std::span<const int> ops, std::int64_t step);

  schedule::Schedule schedule_;
  Options options_;
  std::vector<int> updates_;                 ///< the Update ops
  std::optional<DeviceLanes> device_lanes_;  ///< on a GPU
  std::unique_ptr<Verbs> verbs_;
  std::unique_ptr<RecordedGraphs> graphs_;  ///< where options_.graphs are
  timeline::Timeline timeline_;
  std::int64_t step_ = -1;
  bool rested_ = true;  ///< no lane has run ahead into the step

  std::optional<Driver> driver_;  ///< last: its lanes end before the members that they use
};

}  // namespace trireme::executor
