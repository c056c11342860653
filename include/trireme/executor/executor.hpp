// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
#include "trireme/schedule/op.hpp"
#include "trireme/schedule/stage_access.hpp"
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
  bool first_replica = true;        ///< counts in the norm: replicas hold the same gradients
  bool first_pipeline_rank = true;  ///< counts in the norm what two pipeline ranks hold
  /// How gradients are summed. bf16_wire: terms travel as bf16 and are summed in fp32. bf16: every sum is rounded to
  /// bf16, too.
  config::Reduce reduce = config::Reduce::fp32;
  double balance_bias_rate = 0;  ///< of the correction biases of routers, by the loads of a step
  /// What the compute lane launches is recorded in the second step and launched as graphs from then on (`segments`).
  /// Null: op by op. Needs uncut layers and activations that stay.
  std::shared_ptr<device::Graphs> graphs{};
  /// Fills a slot with NaN when its block is resharded: a test that nothing reads it later.
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
  /// Receives the tensors that an op on a sharded stage has used, at its end and on its thread.
  std::function<void(const schedule::Op& op, schedule::TensorSet used)> on_tensors{};
  /// What lanes wait for, instead of `schedule::needs`: tests leave edges out and see what goes wrong.
  std::optional<std::vector<schedule::Need>> needs{};
};

/// What one step needs besides the schedule.
struct StepInput {
  std::span<const nn::Microbatch> microbatches;
  double lr = 0;
  std::int64_t updates = 0;  ///< applied before this step: Adam's count
  /// Some target of the global batch counts, the same on all ranks. False: there is no loss, and nothing is updated.
  bool counts = true;
};

/// What the host lane has done.
struct HostWork {
  double seconds = 0;  ///< in updates
  Bytes bytes;         ///< that those read and wrote
};

/// Rows of a microbatch that a rank's experts got, and what of its own and of theirs crossed ranks.
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
  double z_loss = 0;     ///< weighted, mean alike: training minimises the sum of both
  double grad_norm = 0;  ///< global L2 norm before clipping
  double balance_loss = 0, router_z_loss = 0;  ///< weighted: of layers with experts
  /// By layer of the whole model and expert: tokens of the step, over all ranks. Empty without experts, and so are
  /// those of dense layers.
  std::vector<std::vector<std::int64_t>> expert_tokens{};
  std::vector<RowsMoved> expert_rows{};  ///< with mesh.expert > 1: of this rank, by block and microbatch
  /// Nothing was updated, on any rank: loss or norm was not finite, or no target counted.
  bool skipped = false;
  bool without_targets = false;  ///< no target counted
  /// Compute lane without work: waiting for communication, or doing it where there are no lane threads.
  double exposed_seconds = 0;
  double pipeline_wait_seconds = 0;  ///< the same of messages between pipeline ranks; not in `exposed_seconds`
  /// Part of the step up to its norm in which pipeline ranks waited for each other, mean over them; with a pipeline.
  std::optional<double> pipeline_bubble{};
  at::Tensor logits;  ///< infer: [B, vocab] fp32
};

class RecordedGraphs;
class Verbs;

/// Runs a schedule: a `Driver` decides when an op runs, `Verbs` does what it says, on state that is kept by microbatch,
/// and `RecordedGraphs` launches runs of ops as one. The calling thread is the compute lane.
class Executor {
 public:
  /// model, store and links outlive the executor. Every rank of the links' groups has an executor of the same schedule.
  Executor(const model::Model& model, schedule::Schedule schedule, store::ParameterStore& store, const Layers& layers,
           Links links, optimizer::OptimizerPlan optimizer, Options options);
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
  [[nodiscard]] bool must_rest() const;

  [[nodiscard]] const schedule::Schedule& schedule() const { return schedule_; }
  [[nodiscard]] HostWork host_work() const;
  [[nodiscard]] timeline::Timeline& timeline() { return timeline_; }

 private:
  /// Runs ops of one lane that other lanes know as one, on that lane's thread and stream.
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

  std::optional<Driver> driver_;  ///< last: its lanes end before what they use
};

}  // namespace trireme::executor
