// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/comm/collectives.hpp"
#include "trireme/comm/counters.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/config/load.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/executor/executor.hpp"
#include "trireme/mesh/mesh.hpp"
#include "trireme/train/engine/traffic.hpp"

namespace trireme::train {

/// Options of a job that are not keys of the run file.
struct JobOptions {
  std::optional<bool> lane_threads;  ///< absent: if a rank has a core to spare for them
  int host_threads = 1;              ///< executor::Options::host_threads
  comm::TransportChoice transport = comm::TransportChoice::automatic;
  at::Device device = at::kCPU;                      ///< where the step computes
  comm::DeviceLink link = comm::DeviceLink::staged;  ///< how tensors on a GPU travel
  comm::NcclSettings nccl{};                         ///< where tensors travel over NCCL
  bool control_over_link = false;    ///< norms and losses too, as comm.backend = "nccl" requires; else MPI on the host
  bool poison = false;               ///< executor::Options::poison
  bool small_windows = false;        ///< tests: buffers below 1 MiB are shared by a node's ranks too
  bool record_timeline = false;      ///< executor::Options::record_timeline
  bool ordered_collectives = false;  ///< executor::Options::ordered_collectives; always with NCCL
  std::function<std::unique_ptr<comm::Transport>(std::unique_ptr<comm::Transport>)>
      wrap_transport{};  ///< tests: a paced link
  std::function<void(int op, std::int64_t step)> on_op{};
  /// executor::Options::needs of a schedule: tests leave edges out.
  std::function<std::vector<schedule::Need>(const schedule::Schedule&, const model::Model&)> needs{};
  std::string hang_dump_path;                                              ///< mpi::Deadline::dump_path
  std::function<std::string()> silent_ranks{};                             ///< mpi::Deadline::silent_ranks
  std::function<std::chrono::steady_clock::time_point()> last_progress{};  ///< mpi::Deadline::last_progress
  bool trains = true;  ///< false: no gradients and optimizer state, forward only
};

class JobLinks;
struct JobSchedules;

/// One training job on this rank: the model's parameters, the schedule, and who it talks to. Everything is collective
/// over the communicator that it is built on, which may be any; every rank builds the same.
class Job {
 public:
  /// config.model has no zeros left (`complete_model`). Throws ConfigError when the mesh or the batch does not fit the
  /// ranks, or when ranks disagree about the run file or the schedule. Parameters are undefined until `store().fill`.
  Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// Trains one step on this rank's part of the batch. last: see executor::Executor::run. spikes: see
  /// executor::StepInput.
  executor::StepResult step(const data::StepBatch& batch, double lr, bool last,
                            const optimizer::SpikeWindow* spikes = nullptr);

  /// Waits until masters and moments hold still: see executor::Executor::finish_updates. Not collective.
  void finish_updates() {
    if (executor_) executor_->finish_updates();
  }

  /// Mean loss over the counted targets of `batches`, NaN if none counts, and their number. Only after a step with
  /// `last`, or before the first.
  struct Evaluation {
    double loss = 0;
    double targets = 0;
    bool complete = true;  ///< false: `next` ended it
  };
  /// The next batch of this dp rank; none ends the evaluation, on every rank.
  using NextBatch = std::function<std::optional<data::StepBatch>()>;
  Evaluation evaluate(const NextBatch& next, std::int64_t steps);
  Evaluation evaluate(data::BatchReader& reader, std::int64_t steps);

  /// Sum of the cross-entropy over the counted targets of this dp rank's row, which may be shorter than data.seq_len
  /// and of another length on every dp rank; its tokens are one document. With tensor, context, pipeline or expert
  /// ranks it is computed as the first row of a whole microbatch, and a rank has its part of the sum: sum_of_rows.
  /// Collective; only as `evaluate`.
  [[nodiscard]] double row_loss(const data::MicrobatchTokens& row);
  /// Sums values that each dp rank has from `row_loss`, else 0, over all ranks. Collective.
  void sum_of_rows(std::span<double> values);

  /// Logits of the last position of each row: [B, vocab] fp32. tokens: [B, T].
  [[nodiscard]] at::Tensor infer(const at::Tensor& tokens);

  /// The same with a key/value cache: computes the positions from `past` on, which is 0 or one less than their number.
  /// past > 0: the previous call had these tokens without the last. Throws BugError when T exceeds data.seq_len.
  [[nodiscard]] at::Tensor infer_cached(const at::Tensor& tokens, std::int64_t past);
  /// Bytes of the cache of `rows` rows on this rank.
  [[nodiscard]] Bytes kv_cache_bytes(std::int64_t rows) const;

  /// Gathers the fp32 masters of one parameter block of the whole model as every tensor rank holds it: [tensor,
  /// padded], or [1, padded] of experts, on the first rank of the pipeline, shard and tensor axes at least. Collective
  /// over these three; lanes idle, as for `evaluate`.
  [[nodiscard]] at::Tensor gather_masters(ParamBlock block);

  /// Returns after every rank of the job has called it.
  void barrier();

  /// Traffic of the last step over every group. Control traffic of this rank between steps is not in it.
  [[nodiscard]] const comm::TrafficTable& step_traffic() const { return step_traffic_; }

  /// Counted targets of the last step's global batch.
  [[nodiscard]] double step_targets() const { return step_targets_; }
  /// Inputs of the last step's global batch, without padding of packed rows.
  [[nodiscard]] double step_tokens() const { return step_tokens_; }

  [[nodiscard]] const config::RunConfig& config() const { return config_; }
  [[nodiscard]] const JobOptions& options() const { return options_; }
  [[nodiscard]] const mesh::Coordinates& at() const { return at_; }
  [[nodiscard]] const shard::Layout& layout() const { return layout_; }
  [[nodiscard]] const schedule::Schedule& schedule() const {
    return executor_ ? executor_->schedule() : forward_schedule_;
  }
  [[nodiscard]] const config::Resolved& resolved() const { return resolved_; }
  [[nodiscard]] const mesh::Mesh& mesh() const { return resolved_; }
  [[nodiscard]] DpRank dp_rank() const { return resolved_.dp_rank(at_); }
  /// For messages: "dp rank 3 (rank 6 on n2)".
  [[nodiscard]] std::string name_of(DpRank dp_rank) const;
  [[nodiscard]] data::BatchShape batch_shape() const;
  /// This rank's part: with a pipeline, its blocks only.
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] const model::Model& whole_model() const { return whole_model_ ? *whole_model_ : model_; }
  [[nodiscard]] const shard::Layout& whole_layout() const { return whole_layout_ ? *whole_layout_ : layout_; }
  [[nodiscard]] store::ParameterStore& store() { return *store_; }
  [[nodiscard]] executor::Executor& executor() { return *executor_; }
  [[nodiscard]] comm::Collectives& control();
  /// Staging memory of the job's transports, charged to `communication`; the rest are pipeline slots.
  [[nodiscard]] Bytes staging() const;
  [[nodiscard]] bool lane_threads() const { return lane_threads_; }
  [[nodiscard]] std::string transport_name() const { return gather().transport_name(); }
  /// Steps that were not skipped: AdamW's count.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  /// Continues after `updates` updates, with masters, compute shards and moments already restored in the store. Before
  /// the first step.
  void restore(std::int64_t updates) { updates_ = updates; }

 private:
  Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options,
      const config::Resolved& resolved);
  Job(const config::RunConfig& config, const mpi::Communicator& world, JobOptions options,
      const config::Resolved& resolved, JobSchedules schedules);
  [[nodiscard]] comm::Collectives& gather() const;
  /// The collectives that sum norms over the tensor axis; null with one tensor rank.
  [[nodiscard]] comm::Collectives* tensor_control() const;
  /// The same over the pipeline axis.
  [[nodiscard]] comm::Collectives* pipeline_control() const;
  /// `gather_masters` of a block that this rank holds. Collective over shard and tensor.
  [[nodiscard]] at::Tensor gather_held(ParamBlock block);
  executor::Executor& forward_executor(nn::Mode mode);
  [[nodiscard]] std::unique_ptr<executor::Executor> make_forward(const schedule::Schedule& schedule, nn::Mode mode);
  /// Shares the whole correction biases of the routers between ranks, after a change of the masters other than by a
  /// step. Collective over the dp group.
  void share_choice_biases();
  [[nodiscard]] double global_count(const data::StepBatch& batch);
  /// Targets of all ranks' batches, those of a sequence once. Collective over the dp group.
  [[nodiscard]] double sum_of_counts(const data::StepBatch& batch);

  config::RunConfig config_;
  JobOptions options_;
  config::Resolved resolved_;
  mesh::Coordinates at_;
  model::Model model_;
  std::optional<model::Model> whole_model_;
  std::vector<int> holders_;
  shard::Layout layout_;
  std::optional<shard::Layout> whole_layout_;
  schedule::Schedule forward_schedule_;
  bool lane_threads_ = false;
  StepTraffic traffic_;
  std::unique_ptr<JobLinks> links_;
  std::unique_ptr<store::ParameterStore> store_;
  std::shared_ptr<const void> product_workspace_;
  executor::Layers layers_;
  std::unique_ptr<executor::Executor> executor_, evaluator_, inferrer_, generator_;
  comm::TrafficTable step_traffic_;
  double step_targets_ = 0;
  double step_tokens_ = 0;
  std::int64_t updates_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t shared_version_ = -1;  ///< of the masters whose correction biases are shared
  bool step_is_first_after_rest_ = true;
};

}  // namespace trireme::train
