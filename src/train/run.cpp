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

#include "train/console/output.hpp"
#include "train/console/progress.hpp"
#include "train/engine/nonfinite_steps.hpp"
#include "train/engine/replicas.hpp"
#include "train/record/peaks.hpp"
#include "train/record/recorder.hpp"
#include "train/save/export.hpp"
#include "train/save/stopping.hpp"
#include "train/setup/banner.hpp"
#include "train/setup/batch_job.hpp"
#include "train/setup/device_kernels.hpp"
#include "train/setup/gemm.hpp"
#include "train/setup/host_cores.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/supervise/directory_lock.hpp"
#include "trireme/supervise/hang_reports.hpp"
#include "trireme/supervise/heartbeat.hpp"
#include "trireme/supervise/watchdog.hpp"
#include "trireme/train/console/terminal.hpp"
#include "trireme/train/engine/job.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/save/output_directory.hpp"
#include "trireme/train/setup/compute_device.hpp"
#include "trireme/train/setup/threads.hpp"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// A collective has its own deadline and knows what it waits for, so it speaks first.
constexpr double watchdog_share = 1.25;

/// The loop of one run: what is the same for all steps, and what they change.
class TrainingRun {
 public:
  TrainingRun(const config::RunConfig& config, const mpi::Communicator& world, const std::string& run_file)
      : config_(checkpoint::complete_model(config, world)),
        rank_(world.rank()),
        heartbeat_(supervise::heartbeat_path(config_.run.output), config_.comm.timeout_seconds),
        world_(with_deadline(world)),
        watchdog_({.timeout_seconds = watchdog_share * config_.comm.timeout_seconds,
                   .dump_path = dump_path(),
                   .last_progress = [this] { return heartbeat_.last(); }},
                  nullptr, "setting up the job"),
        batch_job_(batch_job()),
        topology_(mpi::probe_topology(world)),
        threads_(use_threads(topology_, config_.device.threads)),
        computes_on_(choose_device(config_, world)),
        gemm_(computes_on_.gpu ? kernels::gemm_choice() : agree_on_gemm(world)),
        recorder_(config_, world_),
        job_(config_, world, job_options()),
        checkpoints_(job_, world_, threads_),
        output_(STDOUT_FILENO),
        progress_(output_, config_.train.steps, rewrites_lines(probe_terminal())) {
    fault::set_rank(rank_);
    stopping_.emplace(config_, world_);
    if (rank_ == 0) {
      take_directories(run_file);
      supervise::remove_hang_reports(config_.run.output);
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
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun() { device::help_out_of_memory({}); }

  ExitCode operator()() {
    {
      const supervise::FileWork work = file_work("loading the parameters", 0);
      state_ = checkpoints_.begin();
    }
    gemm_ = kernels::gemm_choice();
    first_step_ = state_.step;
    recorder_.begin(first_step_);
    log::debug("setup complete, parameters loaded");
    if (rank_ == 0) output_.write(banner(job_, batch_job_, topology_, threads_, gemm_, computes_on_) + "\n");
    if (lacks_an_evaluation() && !evaluate(first_step_ - 1)) return stopped();
    data::BatchReader reader(config_.data, data::Split::train, config_.model.vocab_size, config_.run.seed,
                             job_.batch_shape(), {.position = state_.samples, .taken = state_.taken});
    for (std::int64_t step = first_step_; step < config_.train.steps; ++step) {
      if (rank_ == 0) output_.write(checkpoints_.news());
      stops_ = stopping_->asked();
      train_step(reader, step);
      const bool saves = checkpoints_.due_after(step) || stops_;
      if (saves) save(step);
      const bool evaluated = !evaluates_after(step) || (!stops_ && evaluate(step));
      if (!evaluated && !saves) save(step);
      if (!evaluated || (stops_ && step + 1 < config_.train.steps)) return stopped();
    }
    wind_up();
    if (rank_ == 0 && first_step_ < config_.train.steps)
      output_.write("\n" + peaks_.table([this](int op) { return op_text(op); }));
    if (config_.run.export_when == config::Export::end) export_to(config_.run.output + "/export");
    return ExitCode::done;
  }

 private:
  [[nodiscard]] std::string dump_path() const { return supervise::hang_report_path(config_.run.output, rank_); }

  /// Said once, for all nodes.
  void warn_of_few_cores() const {
    const std::string here = topology_.node_rank == 0 ? too_few_cores(batch_job_, topology_, threads_) : "";
    const std::string said = mpi::agree_on_failure(world_, here);
    if (rank_ == 0 && !said.empty()) log::warning(said);
  }

  /// No other job may write where this one does. On one rank.
  void take_directories(const std::string& run_file) {
    create_output_directory(config_);
    locks_.emplace_back(std::make_unique<supervise::DirectoryLock>(config_.run.output, "run.output"));
    prepare_output_directory(config_, run_file);
    if (!saves_checkpoints(config_)) return;
    locks_.emplace_back(
        std::make_unique<supervise::DirectoryLock>(config_.checkpoint.directory, "checkpoint.directory"));
    stopping_->watch_time(config_.train.stop_before_limit_seconds,
                          checkpoint::staging_bytes(job_.layout()).value / job_.mesh().replicate);
  }

  /// What waits on it, or on what is made from it, waits no longer than while anything moves: here, or on a rank that
  /// is at work on files.
  [[nodiscard]] mpi::Communicator with_deadline(const mpi::Communicator& world) {
    mpi::Communicator copy = world.duplicate();
    copy.set_deadline({.timeout_seconds = config_.comm.timeout_seconds,
                       .dump_path = dump_path(),
                       .silent_ranks = [this] { return supervise::silent_ranks(config_.run.output, world_); },
                       .last_progress = [this] { return std::max(heartbeat_.last(), watchdog_.marked()); }});
    return copy;
  }

  /// The watchdog and the other ranks take bytes that move for progress while the result lives.
  [[nodiscard]] supervise::FileWork file_work(const std::string& what, std::int64_t step) {
    watchdog_.mark(what, step);
    mpi::doing(fmt::format("{}, step {}", what, step + 1));
    return supervise::FileWork(heartbeat_, [this, what, step] { watchdog_.mark(what, step); });
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
                  mpi::doing(fmt::format("{}, step {}", task, first_step_ + step + 1));
                  if (schedule::lane_of(job_.schedule().ops[index]) == schedule::Lane::compute)
                    watchdog_.mark(task, step);
                },
            .hang_dump_path = dump_path(),
            .silent_ranks = [this] { return supervise::silent_ranks(config_.run.output, world_); },
            .last_progress = [this] { return heartbeat_.last(); }};
  }

  [[nodiscard]] std::int64_t replica_check_every() const {
    return config_.train.replica_check_every > 0 ? config_.train.replica_check_every : config_.metrics.every;
  }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return config_.train.eval_every > 0 && (step + 1) % config_.train.eval_every == 0;
  }
  /// A run that was ended in an evaluation, behind its save, does it when it goes on.
  [[nodiscard]] bool lacks_an_evaluation() const {
    return first_step_ > 0 && evaluates_after(first_step_ - 1) &&
           mpi::any_rank(world_, !recorder_.evaluated(first_step_ - 1));
  }
  /// Lanes come to rest after steps that something else follows than the next step.
  [[nodiscard]] bool rests_after(std::int64_t step) const {
    return step + 1 == config_.train.steps || evaluates_after(step) || recorder_.rests_after(step) || stops_ ||
           checkpoints_.due_after(step);
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
    const double own_seconds = seconds_since(begin) - (comm::seconds_inside_collectives() - waited) -
                               (job_.lane_threads() ? result.exposed_seconds : 0);
    const device::MemoryUse memory = device::memory_use();
    peaks_.add(memory);
    if (rank_ == 0 && !computes_on_.gpu) budget_.look(memory[device::Space::device]);
    recorder_.add_step(job_, step, step > first_step_ ? std::optional(own_seconds) : std::nullopt);
    if (step == 0) log::debug("the first step is done");
    if (step == first_step_ + 2 && rank_ == 0)
      if (const std::string said = few_cores_warning(topology_, threads_, job_.executor().host_work()); !said.empty())
        log::warning(said);
    count_nonfinite_step(state_, result, step, rank_);
    state_.step = step + 1;
    state_.tokens += config_.batch.global * config_.data.seq_len;
    state_.learning_rate = lr;
    state_.samples = reader.state().position;
    state_.taken = reader.state().taken;
    if (job_.mesh().replicate > 1 && (step + 1) % replica_check_every() == 0) check_replicas(job_);
    if ((step + 1) % config_.metrics.every == 0 || step + 1 == config_.train.steps)
      report(step, lr, seconds_since(begin), data_seconds, result, memory);
    stopping_->took({.step = seconds_since(begin)});
    abort_after_nonfinite_steps(state_, config_.train.max_skipped_steps, step, rank_);
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
    recorder_.append(row);
    progress_.show(row);
  }

  /// Lanes at rest. False when the run has to stop: nothing is reported then.
  [[nodiscard]] bool evaluate(std::int64_t step) {
    const auto begin = Clock::now();
    data::BatchShape shape = job_.batch_shape();
    shape.accumulation = 1;
    data::BatchReader reader(config_.data, data::Split::validation, config_.model.vocab_size, config_.run.seed, shape);
    const std::int64_t all =
        (reader.samples() + shape.global() - 1) / shape.global();  // targets past the last sample do not count
    mpi::doing(fmt::format("evaluation, step {}", step + 1));
    auto batch_begin = begin;
    const auto result = job_.evaluate(reader, config_.train.eval_steps > 0 ? config_.train.eval_steps : all, [&] {
      watchdog_.mark("evaluation", step);
      (void)fault::point("eval.batch");
      stopping_->took({.evaluation_batch = seconds_since(std::exchange(batch_begin, Clock::now()))});
      return !(stops_ = stopping_->asked());
    });
    if (!result.complete) {
      if (rank_ == 0) log::info(fmt::format("the evaluation of step {} is left for the next start", step + 1));
      return false;
    }
    const EvalRow row{.step = step + 1,
                      .eval_loss = result.loss,
                      .eval_tokens = static_cast<std::int64_t>(result.targets),
                      .eval_seconds = seconds_since(begin)};
    if (rank_ != 0) return true;
    recorder_.append(row);
    progress_.show(row);
    return true;
  }

  /// Lanes at rest.
  void save(std::int64_t step) {
    const bool last = stops_ || step + 1 == config_.train.steps;
    {
      const supervise::FileWork work = file_work("saving a checkpoint", step);
      const std::string said = checkpoints_.save(state_, last);
      if (rank_ == 0) output_.write(said);
    }
    stopping_->took({.save = checkpoints_.save_seconds()});
    if (config_.run.export_when != config::Export::every_checkpoint) return;
    const auto begin = Clock::now();
    try {
      export_to(fmt::format("{}/export-{}", config_.run.output, checkpoint::step_name(state_.step)));
    } catch (const WriteError& error) {  // on the first rank: the checkpoint is what matters
      log::error(fmt::format("the export of step {} failed, the training goes on: {}", state_.step, error.what()));
    }
    stopping_->took({.exporting = seconds_since(begin)});
  }

  /// Nothing is left to be written when a run ends; what failed is an error then.
  void wind_up() {
    {
      const supervise::FileWork work = file_work("waiting for the last save", state_.step - 1);
      const std::string said = checkpoints_.finish();
      if (rank_ == 0) output_.write(said);
    }
    recorder_.report_step_times();
    watchdog_.rest();
    if (rank_ == 0) supervise::remove_hang_reports(config_.run.output);
    progress_.finish();
  }

  /// The end of a run that a signal asked for: the same command line goes on.
  [[nodiscard]] ExitCode stopped() {
    wind_up();
    if (rank_ == 0)
      output_.write(fmt::format("stopped {} after step {}: run the same command to resume\n",
                                stopping_->out_of_time() ? "before the job's time limit" : "by a signal", state_.step));
    return ExitCode::requeue;
  }

  void export_to(const std::string& directory) {
    const supervise::FileWork work = file_work("exporting the weights", state_.step - 1);
    export_huggingface(job_, directory, true);
    watchdog_.rest();
    if (rank_ == 0) output_.write(fmt::format("exported {}\n", directory));
  }

  config::RunConfig config_;
  int rank_;
  supervise::Heartbeat heartbeat_;
  mpi::Communicator world_;
  supervise::Watchdog watchdog_;
  BatchJob batch_job_;
  mpi::Topology topology_;
  int threads_;
  ComputeDevice computes_on_;
  kernels::GemmChoice gemm_;
  Recorder recorder_;
  Job job_;
  Checkpointing checkpoints_;
  std::vector<std::unique_ptr<supervise::DirectoryLock>> locks_;
  std::optional<Stopping> stopping_;
  Output output_;
  ProgressLine progress_;
  RunPeaks peaks_;
  BudgetWatch budget_{config_.memory.budget};
  std::vector<std::string> task_names_;  ///< by op of the schedule
  checkpoint::State state_;
  std::int64_t first_step_ = 0;
  bool stops_ = false;  ///< after this step
};

}  // namespace

ExitCode run_training(const config::RunConfig& config, const mpi::Communicator& world, const std::string& run_file) {
  TrainingRun run(config, world, run_file);
  try {
    return run();
  } catch (...) {
    mpi::abort_job_for_current_exception();  // here, while lanes run: ending them would wait for the other ranks
  }
}

}  // namespace trireme::train
