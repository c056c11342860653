// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/file.hpp"
#include "trireme/comm/abort.hpp"
#include "trireme/comm/gather.hpp"
#include "trireme/comm/topology.hpp"
#include "trireme/comm/watchdog.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/history.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/train/banner.hpp"
#include "trireme/train/batch_job.hpp"
#include "trireme/train/checkpointing.hpp"
#include "trireme/train/compute_device.hpp"
#include "trireme/train/device_kernels.hpp"
#include "trireme/train/directory_lock.hpp"
#include "trireme/train/export.hpp"
#include "trireme/train/first_parameters.hpp"
#include "trireme/train/gemm.hpp"
#include "trireme/train/hang_reports.hpp"
#include "trireme/train/host_cores.hpp"
#include "trireme/train/job.hpp"
#include "trireme/train/memory_snapshot.hpp"
#include "trireme/train/output.hpp"
#include "trireme/train/output_directory.hpp"
#include "trireme/train/peaks.hpp"
#include "trireme/train/progress.hpp"
#include "trireme/train/replicas.hpp"
#include "trireme/train/row_files.hpp"
#include "trireme/train/skips.hpp"
#include "trireme/train/step_times.hpp"
#include "trireme/train/stop_signals.hpp"
#include "trireme/train/terminal.hpp"
#include "trireme/train/threads.hpp"
#include "trireme/train/time_limit.hpp"
#include "trireme/train/trace.hpp"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A collective has its own deadline and knows what it waits for, so it speaks first.
constexpr double watchdog_share = 1.25;

/// Steps between looks at who is slow: enough for a median that a busy machine does not disturb.
constexpr std::uint32_t straggler_window = 64;

/// The loop of one run: what is the same for all steps, and what they change.
class Run {
 public:
  Run(const config::RunConfig& config, const comm::Communicator& world, const std::string& run_file)
      : config_(complete_model(config, world)),
        rank_(world.rank()),
        world_(world.duplicate()),
        watchdog_({.timeout_seconds = watchdog_share * config_.comm.timeout_seconds, .dump_path = dump_path()}, nullptr,
                  "setting up the job"),
        batch_job_(batch_job()),
        topology_(comm::probe_topology(world)),
        threads_(use_threads(topology_, config_.device.threads)),
        computes_on_(choose_device(config_, world)),
        gemm_(computes_on_.gpu ? kernels::gemm_choice() : agree_on_gemm(world)),
        recorded_(record(config_)),
        job_(config_, world, job_options()),
        checkpoints_(job_, world, threads_),
        output_(STDOUT_FILENO),
        progress_(output_, config_.train.steps, rewrites_lines(surroundings())) {
    fault::set_rank(rank_);
    saves_checkpoints(config_) ? (void)stop_signals_.emplace() : release_stop_signals();
    if (rank_ == 0) {
      take_directories(run_file);
      remove_hang_reports(config_.run.output);
    }
    job_.barrier();
    warn_of_few_cores();
    if (computes_on_.gpu) choose_device_kernels(config_, job_.model().held, world_);
    if (rank_ == 0 && !computes_on_.remark.empty()) log::info(computes_on_.remark);
    for (const schedule::Op& op : job_.schedule().ops) task_names_.push_back(schedule::print(op, job_.model()));
    device::help_out_of_memory(
        {.op_text = [this](int op) { return op_text(op); },
         .advice = [told = planner::computing_on(config_, computes_on_.gpu.has_value()),
                    ranks = world.size()] { return planner::to_text(planner::advise(told, ranks)); }});
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() { device::help_out_of_memory({}); }

  ExitCode operator()() {
    watchdog_.mark("reading the parameters", 0);
    state_ = checkpoints_.begin();
    gemm_ = kernels::gemm_choice();
    first_step_ = state_.step;
    if (rank_ == 0) metrics_.emplace(config_, first_step_);
    log::debug("the job is set up, its parameters are there");
    if (rank_ == 0) output_.write(banner(job_, batch_job_, topology_, threads_, gemm_, computes_on_) + "\n");
    data::BatchReader reader(config_.data, data::Split::train, config_.model.vocab_size, config_.run.seed,
                             job_.batch_shape(), {.position = state_.samples, .taken = state_.taken});
    for (std::int64_t step = first_step_; step < config_.train.steps; ++step) {
      if (rank_ == 0) output_.write(checkpoints_.news());
      stopping_ = stop_signals_ && checkpoints_.stop_requested(StopSignals::received() != 0 || time_is_up());
      train_step(reader, step);
      if (evaluates_after(step) && !stopping_) evaluate(step);
      if (checkpoints_.due_after(step) || stopping_) save(step);
      if (stopping_ && step + 1 < config_.train.steps) return stopped();
    }
    wind_up();
    if (rank_ == 0 && first_step_ < config_.train.steps)
      output_.write("\n" + peaks_.table([this](int op) { return op_text(op); }));
    if (config_.run.export_when == config::Export::end) export_to(config_.run.output + "/export");
    return ExitCode::done;
  }

 private:
  [[nodiscard]] std::string dump_path() const { return hang_report_path(config_.run.output, rank_); }

  /// Said once, for all nodes.
  void warn_of_few_cores() const {
    const std::string here = topology_.node_rank == 0 ? too_few_cores(batch_job_, topology_, threads_) : "";
    const std::string said = comm::agree_on_failure(world_, here);
    if (rank_ == 0 && !said.empty()) log::warning(said);
  }

  /// No other job may write where this one does. On one rank.
  void take_directories(const std::string& run_file) {
    create_output_directory(config_);
    locks_.emplace_back(std::make_unique<DirectoryLock>(config_.run.output, "run.output"));
    prepare_output_directory(config_, run_file);
    if (!saves_checkpoints(config_)) return;
    locks_.emplace_back(std::make_unique<DirectoryLock>(config_.checkpoint.directory, "checkpoint.directory"));
    time_limit_.emplace(config_.train.stop_before_limit_seconds,
                        checkpoint::staging_bytes(job_.layout()).value / job_.mesh().replicate);
  }

  /// Whether the job's end is too near for another step and a save; the first rank's clock decides.
  [[nodiscard]] bool time_is_up() {
    if (!time_limit_ || !time_limit_->reached(longest_step_seconds_, checkpoints_.save_seconds())) return false;
    if (!out_of_time_)
      log::info(fmt::format("the job ends in {:.0f} s, a step and a save may take {:.0f} s: saving and stopping now",
                            time_limit_->left(),
                            time_limit_->reserve(longest_step_seconds_, checkpoints_.save_seconds())));
    return out_of_time_ = true;
  }

  JobOptions job_options() {
    return {.lane_threads = config_.comm.lane_threads,
            .host_threads = host_threads(topology_, threads_),
            .transport = config_.comm.backend == config::Backend::mpi ? comm::TransportChoice::mpi
                                                                      : comm::TransportChoice::automatic,
            .device = computes_on_.device,
            .link = computes_on_.link,
            .control_over_link = config_.comm.backend == config::Backend::nccl,
            .record_timeline = !config_.metrics.trace_steps.empty(),
            .on_op =
                [this](int op, std::int64_t step) {
                  const auto index = static_cast<std::size_t>(op);
                  const std::string& task = task_names_[index];
                  comm::doing(fmt::format("{}, step {}", task, first_step_ + step + 1));
                  if (schedule::lane_of(job_.schedule().ops[index]) == schedule::Lane::compute)
                    watchdog_.mark(task, step);
                },
            .hang_dump_path = dump_path(),
            .silent_ranks = [this] { return silent_ranks(config_.run.output, world_); }};
  }

  [[nodiscard]] static bool record(const config::RunConfig& config) {
    constexpr std::size_t most_events = 500'000;
    if (config.metrics.memory_snapshot) device::record_memory(most_events);
    return config.metrics.memory_snapshot;
  }
  [[nodiscard]] bool snapshot_after(std::int64_t step) const {
    const std::vector<std::int64_t>& traced = config_.metrics.trace_steps;
    const std::int64_t last = traced.empty() ? first_step_ + 2 : *std::max_element(traced.begin(), traced.end());
    return recorded_ && (step + 1 >= last || step + 1 == config_.train.steps);
  }

  [[nodiscard]] std::int64_t replica_check_every() const {
    return config_.train.replica_check_every > 0 ? config_.train.replica_check_every : config_.metrics.every;
  }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return config_.train.eval_every > 0 && (step + 1) % config_.train.eval_every == 0;
  }
  [[nodiscard]] bool traces(std::int64_t step) const {
    return std::find(config_.metrics.trace_steps.begin(), config_.metrics.trace_steps.end(), step + 1) !=
           config_.metrics.trace_steps.end();
  }
  /// Lanes come to rest after steps that something else follows than the next step.
  [[nodiscard]] bool rests_after(std::int64_t step) const {
    return step + 1 == config_.train.steps || evaluates_after(step) || traces(step) || snapshot_after(step) ||
           stopping_ || checkpoints_.due_after(step);
  }

  void train_step(data::BatchReader& reader, std::int64_t step) {
    const auto begin = Clock::now();
    const double waited = comm::seconds_inside_collectives();
    fault::set_step(static_cast<long>(step));
    (void)fault::point("step.begin");
    const data::StepBatch batch = reader.next();
    const double data_seconds = seconds_since(begin);
    device::reset_peaks();
    const double lr = optim::learning_rate(config_.lr, config_.optimizer.lr, step, config_.train.steps);
    const executor::StepResult result = job_.step(batch, lr, rests_after(step));
    if (step > first_step_)  // the first one warms up
      step_times_.add(seconds_since(begin) - (comm::seconds_inside_collectives() - waited) -
                      (job_.lane_threads() ? result.exposed_seconds : 0));
    const device::MemoryUse memory = device::memory_use();
    peaks_.add(memory);
    if (rank_ == 0 && !computes_on_.gpu) budget_.look(memory[device::Space::device]);
    if (job_.options().record_timeline) take_timeline(step);
    if (snapshot_after(step)) write_snapshot();
    if (step == 0) log::debug("the first step is done");
    if (step == first_step_ + 2 && rank_ == 0)
      if (const std::string said = few_cores_warning(topology_, threads_, job_.executor().host_work()); !said.empty())
        log::warning(said);
    count_skip(state_, result, step, rank_);
    state_.step = step + 1;
    state_.tokens += config_.batch.global * config_.data.seq_len;
    state_.learning_rate = lr;
    state_.samples = reader.state().position;
    state_.taken = reader.state().taken;
    if (job_.mesh().replicate > 1 && (step + 1) % replica_check_every() == 0) check_replicas(job_);
    if ((step + 1) % config_.metrics.every == 0 || step + 1 == config_.train.steps)
      report(step, lr, seconds_since(begin), data_seconds, result, memory);
    if (step_times_.steps() == straggler_window) report_step_times();
    longest_step_seconds_ = std::max(longest_step_seconds_, seconds_since(begin));
    give_up_after_many_skips(state_, config_.train.max_skipped_steps, step, rank_);
  }

  /// Names a rank that all others wait for, and leaves every rank's times behind.
  void report_step_times() {
    const std::vector<StepTimes> by_rank = StepTimes::gather(world_, std::exchange(step_times_, {}));
    if (rank_ != 0) return;
    const auto name = [this](int rank) { return world_.name_of(rank); };
    const std::optional<Slowest> found = slowest(by_rank);
    if (!found) return;
    checkpoint::write_text(config_.run.output + "/step_times.json", to_json(by_rank, name));
    if (found->straggles() && by_rank.front().steps() == straggler_window) log::warning(to_text(*found, name));
  }

  [[nodiscard]] std::string op_text(int op) const { return task_names_[static_cast<std::size_t>(op)]; }

  void report(std::int64_t step, double lr, double step_seconds, double data_seconds,
              const executor::StepResult& result, const device::MemoryUse& memory) {
    if (rank_ != 0) return;
    const double tokens = static_cast<double>(config_.batch.global * config_.data.seq_len);
    StepRow row{.step = step + 1,
                .loss = result.loss,
                .grad_norm = result.grad_norm,
                .z_loss = config_.loss.z_loss > 0 ? std::optional(result.z_loss) : std::nullopt,
                .lr = lr,
                .tokens = state_.tokens,
                .target_tokens = static_cast<std::int64_t>(job_.step_targets()),
                .step_seconds = step_seconds,
                .data_seconds = data_seconds,
                .exposed_comm_seconds = result.exposed_seconds,
                .tokens_per_second = tokens / step_seconds,
                .tokens_per_second_per_rank = tokens / step_seconds / job_.mesh().ranks(),
                .gemm = kernels::to_text(gemm_),
                .restart_count = batch_job_.restart_count,
                .skipped = result.skipped,
                .skipped_steps = state_.skipped,
                .memory = memory,
                .op_text = [this](int op) { return op_text(op); },
                .rss = device::rss_bytes(),
                .traffic = job_.step_traffic()};
    if (const std::optional<double> peak = peak_flops(config_, computes_on_))
      row.mfu = model::flops_per_token(job_.model(), config_.data.seq_len) * row.tokens_per_second_per_rank / *peak;
    metrics_->append(row);
    progress_.show(row);
  }

  void evaluate(std::int64_t step) {
    watchdog_.mark("evaluation", step);
    const auto begin = Clock::now();
    data::BatchShape shape = job_.batch_shape();
    shape.accumulation = 1;
    data::BatchReader reader(config_.data, data::Split::validation, config_.model.vocab_size, config_.run.seed, shape);
    const std::int64_t all =
        (reader.samples() + shape.global() - 1) / shape.global();  // targets past the last sample do not count
    const auto result = job_.evaluate(reader, config_.train.eval_steps > 0 ? config_.train.eval_steps : all);
    const EvalRow row{.step = step + 1,
                      .eval_loss = result.loss,
                      .eval_tokens = static_cast<std::int64_t>(result.targets),
                      .eval_seconds = seconds_since(begin)};
    if (rank_ != 0) return;
    metrics_->append(row);
    progress_.show(row);
  }

  /// Keeps the spans of the steps that are asked for; a lane's work ahead belongs to the step it is for.
  void take_timeline(std::int64_t step) {
    for (const executor::Span& span : job_.executor().timeline().take())
      if (traces(first_step_ + span.step)) spans_.push_back(span);
    if (!traces(step) || spans_.empty()) return;
    checkpoint::write_text(fmt::format("{}/trace-rank{}.json", config_.run.output, rank_),
                           chrome_trace(spans_, job_.executor().schedule(), job_.model(), rank_));
  }

  /// Lanes at rest.
  void write_snapshot() {
    checkpoint::write_text(fmt::format("{}/memory-rank{}.pickle", config_.run.output, rank_),
                           memory_snapshot(device::memory_history(), job_.executor().schedule(), job_.model()));
    device::record_memory(0);
    recorded_ = false;
  }

  /// Lanes at rest.
  void save(std::int64_t step) {
    const bool last = stopping_ || step + 1 == config_.train.steps;
    watchdog_.mark("saving a checkpoint", step);
    const std::string said = checkpoints_.save(state_, last);
    if (rank_ == 0) output_.write(said);
    if (config_.run.export_when == config::Export::every_checkpoint)
      export_to(fmt::format("{}/export-{}", config_.run.output, checkpoint::step_name(state_.step)));
  }

  /// Nothing is left to be written when a run ends; what failed is an error then.
  void wind_up() {
    watchdog_.mark("waiting for the last save", state_.step - 1);
    const std::string said = checkpoints_.finish();
    if (rank_ == 0) output_.write(said);
    report_step_times();
    watchdog_.rest();
    progress_.finish();
  }

  /// The end of a run that a signal asked for: the same command line goes on.
  [[nodiscard]] ExitCode stopped() {
    wind_up();
    if (rank_ == 0)
      output_.write(fmt::format("stopped {} after step {}: the same command goes on from there\n",
                                out_of_time_ ? "before the job's time limit" : "by a signal", state_.step));
    return ExitCode::requeue;
  }

  void export_to(const std::string& directory) {
    export_huggingface(job_, directory, true);
    if (rank_ == 0) output_.write(fmt::format("exported {}\n", directory));
  }

  config::RunConfig config_;
  int rank_;
  comm::Communicator world_;
  comm::Watchdog watchdog_;
  BatchJob batch_job_;
  comm::Topology topology_;
  int threads_;
  ComputeDevice computes_on_;
  kernels::GemmChoice gemm_;
  bool recorded_;  ///< metrics.memory_snapshot: all of the memory's history is, until the snapshot is written
  Job job_;
  Checkpointing checkpoints_;
  std::vector<std::unique_ptr<DirectoryLock>> locks_;
  std::optional<StopSignals> stop_signals_;  ///< absent: nothing to save, signals end the run
  std::optional<TimeLimit> time_limit_;      ///< on the first rank
  Output output_;
  ProgressLine progress_;
  std::optional<RowFiles> metrics_;  ///< on the first rank
  std::vector<executor::Span> spans_;
  RunPeaks peaks_;
  BudgetWatch budget_{config_.memory.budget};
  std::vector<std::string> task_names_;  ///< by op of the schedule
  StepTimes step_times_;                 ///< since they were last reported
  checkpoint::State state_;
  std::int64_t first_step_ = 0;
  bool stopping_ = false;  ///< after this step
  bool out_of_time_ = false;
  double longest_step_seconds_ = 0;
};

}  // namespace

ExitCode run_training(const config::RunConfig& config, const comm::Communicator& world, const std::string& run_file) {
  Run run(config, world, run_file);
  try {
    return run();
  } catch (...) {
    comm::abort_job_for_current_exception();  // here, while lanes run: ending them would wait for the other ranks
  }
}

}  // namespace trireme::train
