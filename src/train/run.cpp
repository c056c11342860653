// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "train/directory_check.hpp"
#include "train/engine/expert_room.hpp"
#include "train/engine/replicas.hpp"
#include "train/engine/skipped_steps.hpp"
#include "train/open_tokens.hpp"
#include "train/record/end_report.hpp"
#include "train/reporter.hpp"
#include "train/save/directory_locks.hpp"
#include "train/save/emergency_save.hpp"
#include "train/save/saver.hpp"
#include "train/save/stopping.hpp"
#include "train/setup/device_kernels.hpp"
#include "train/setup/nvlink.hpp"
#include "train/setup/stop_command.hpp"
#include "train/validation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/base/standard_error.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/optim/learning_rate.hpp"
#include "trireme/planner/advice.hpp"
#include "trireme/supervise/hang_reports.hpp"
#include "trireme/train/save/output_directory.hpp"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

/// Set by `trireme supervise --exclude-stragglers` while it has a spare.
bool supervisor_replaces_stragglers() {
  const char* const replaces = std::getenv("TRIREME_REPLACE_STRAGGLERS");
  return replaces != nullptr && std::string_view(replaces) == "1";
}

/// The training loop of one run.
class TrainingLoop {
 public:
  /// All outlive the loop.
  TrainingLoop(Job& job, Supervision& supervision, Recorder& recorder, Reporter& reporter, Saver& saver,
               Stopping& stopping, Output& output, std::optional<EmergencySave>& emergency)
      : job_(job),
        config_(job.config()),
        supervision_(supervision),
        recorder_(recorder),
        reporter_(reporter),
        saver_(saver),
        stopping_(stopping),
        output_(output),
        emergency_(emergency),
        rank_(supervision.world().rank()),
        validation_(job, supervision, stopping),
        skipped_steps_(config_.train.max_skipped_steps, rank_) {}

  /// Trains from `state` to the last step on the files `train`.
  ExitCode run(checkpoint::State state, data::Datasets train) {
    state_ = std::move(state);
    first_step_ = state_.step;
    if (config_.train.eval_every > 0) validation_.open();
    if (lacks_an_evaluation() && !evaluate(first_step_ - 1)) return stopped();
    data::BatchReader reader(std::move(train), config_.data, data::Split::train, config_.run.seed, job_.batch_shape(),
                             {.position = state_.samples, .taken = state_.taken});
    for (std::int64_t step = first_step_; step < config_.train.steps; ++step) {
      saver_.print_news();
      stops_ = stopping_.asked();
      train_step(reader, step);
      const bool saves = saver_.due_after(step) || stops_;
      if (saves) save(step);
      if (saves && !stops_) stops_ = asked_after_save();  // which then needs no further step
      const bool evaluated = !evaluates_after(step) || (!stops_ && evaluate(step));
      if (!evaluated && !saves) save(step);
      if (!evaluated || (stops_ && step + 1 < config_.train.steps)) return stopped();
    }
    wind_up();
    reporter_.print_peaks();
    if (rank_ == 0 && config_.metrics.report) {  // even if the export fails
      const supervise::FileWork files = supervision_.file_work("writing the report", state_.step - 1);
      output_.write(write_end_report(config_));
    }
    saver_.export_at_end(state_);
    end_attempt();
    reporter_.print_summary(state_);
    leave_together();
    return ExitCode::done;
  }

 private:
  [[nodiscard]] std::int64_t replica_check_every() const {
    return config_.train.replica_check_every > 0 ? config_.train.replica_check_every : config_.metrics.every;
  }
  [[nodiscard]] bool evaluates_after(std::int64_t step) const {
    return config_.train.eval_every > 0 && (step + 1) % config_.train.eval_every == 0;
  }
  /// A run that was ended in an evaluation, after its save, does it when it is resumed.
  [[nodiscard]] bool lacks_an_evaluation() const {
    return first_step_ > 0 && evaluates_after(first_step_ - 1) &&
           mpi::any_rank(supervision_.world(), !recorder_.evaluated(first_step_ - 1));
  }
  /// Lanes become idle after steps that are not followed by the next step directly.
  [[nodiscard]] bool rests_after(std::int64_t step) const {
    return step + 1 == config_.train.steps || evaluates_after(step) || recorder_.rests_after(step) || stops_ ||
           saver_.due_after(step);
  }

  void train_step(data::BatchReader& reader, std::int64_t step) {
    const auto begin = Clock::now();
    const double waited = comm::seconds_inside_collectives();
    if (emergency_) emergency_->offer(state_);
    fault::set_step(static_cast<long>(step));
    (void)fault::point("step.begin");
    recorder_.begin_step(job_, step);
    const data::StepBatch batch = reader.next();
    TrainedStep trained{.step = step,
                        .lr = optim::learning_rate(config_.lr, config_.optimizer.lr, step, config_.train.steps),
                        .data_seconds = seconds_since(begin)};
    device::reset_peaks();
    trained.result =
        job_.step(batch, trained.lr, rests_after(step), config_.train.skip_spikes ? &state_.spikes : nullptr);
    trained.spike_score = state_.spikes.score(trained.result.loss, trained.result.grad_norm);
    if (emergency_) emergency_->withdraw();  // its first update did
    trained.own_seconds =
        seconds_since(begin) - (comm::seconds_inside_collectives() - waited) -
        (job_.lane_threads() ? trained.result.exposed_seconds + trained.result.pipeline_wait_seconds : 0);
    trained.memory = device::memory_use();
    reporter_.add(trained);
    skipped_steps_.count(state_, trained.result, step);
    expert_room_.look_at(job_, trained.result, step);
    state_.spikes.add(trained.result.loss, trained.result.grad_norm);
    state_.step = step + 1;
    state_.tokens += config_.batch.global * config_.data.seq_len;
    state_.learning_rate = trained.lr;
    state_.samples = reader.state().position;
    state_.taken = reader.state().taken;
    if (job_.mesh().replicate > 1 && (step + 1) % replica_check_every() == 0) check_replicas(job_);
    reporter_.report(trained, state_, seconds_since(begin));
    stopping_.took({.step = seconds_since(begin)});
    skipped_steps_.abort_after_too_many(state_, trained.result, step, config_.checkpoint);
  }

  /// Requires idle lanes. Returns false, without a report, when the run has to stop. Unreadable files stop no run.
  [[nodiscard]] bool evaluate(std::int64_t step) {
    const auto begin = Clock::now();
    const Validation::Result result = validation_.evaluate(step);
    count(report::GoodputEvent::Kind::evaluation, begin);
    stops_ = result.stops;
    if (stops_ || !result.row) return !stops_;
    reporter_.report(*result.row);
    if (!result.best) return true;
    const auto saves = Clock::now();
    saver_.offer_best(state_, *result.best);
    count(report::GoodputEvent::Kind::save, saves);
    return true;
  }

  /// Requires idle lanes.
  void save(std::int64_t step) {
    const auto begin = Clock::now();
    stopping_.took(saver_.save(state_, stops_ || step + 1 == config_.train.steps));
    count(report::GoodputEvent::Kind::save, begin);
  }

  /// Whether the run stops after the save of this step. Under `trireme supervise --exclude-stragglers` also to let it
  /// replace nodes.
  [[nodiscard]] bool asked_after_save() {
    if (rank_ == 0 && supervisor_replaces_stragglers() && state_.step < config_.train.steps)
      stopping_.replace_after_save(recorder_.stragglers());
    return stopping_.asked_after_save();
  }

  /// Counts the time since `begin`, in which no step ran.
  void count(report::GoodputEvent::Kind kind, Clock::time_point begin) {
    if (GoodputRecord* const goodput = recorder_.goodput()) goodput->took(kind, state_.step, seconds_since(begin));
  }
  void end_attempt() {
    if (GoodputRecord* const goodput = recorder_.goodput()) goodput->end();
  }

  /// Writes pending output at the end of a run; a failure is an error now.
  void wind_up() {
    if (emergency_) emergency_->close();
    const auto begin = Clock::now();
    saver_.finish(state_);
    count(report::GoodputEvent::Kind::save, begin);
    {
      const supervise::FileWork files = supervision_.file_work("writing what was recorded", state_.step - 1);
      recorder_.finish(job_);
      if (rank_ == 0) supervise::remove_hang_reports(config_.run.output);
    }
    reporter_.finish_line();
  }

  /// The rest is short on all ranks: a rank that does not reach MPI_Finalize is stuck.
  void leave_together() {
    mpi::collective_try(supervision_.world(), "end the run", [] {});
    supervision_.mark("ending the run", supervise::Watchdog::at_end);
  }

  /// The end of a run on a signal: the same command line resumes it.
  [[nodiscard]] ExitCode stopped() {
    wind_up();
    end_attempt();
    if (rank_ == 0)
      output_.write(fmt::format("stopped {} after step {}: run the same command to resume\n",
                                stopping_.out_of_time()        ? "before the job's time limit"
                                : stopping_.replaced().empty() ? "by a signal"
                                                               : "to replace node " + stopping_.replaced(),
                                state_.step));
    leave_together();
    return ExitCode::requeue;
  }

  Job& job_;
  const config::RunConfig& config_;
  Supervision& supervision_;
  Recorder& recorder_;
  Reporter& reporter_;
  Saver& saver_;
  Stopping& stopping_;
  Output& output_;
  std::optional<EmergencySave>& emergency_;
  int rank_;
  Validation validation_;
  SkippedSteps skipped_steps_;
  ExpertRoom expert_room_;
  checkpoint::State state_;
  std::int64_t first_step_ = 0;
  bool stops_ = false;  ///< after this step
};

/// While one lives, an error for lack of memory names the op of the step and changes that need less.
class OutOfMemoryHelp {
 public:
  OutOfMemoryHelp(const OpWatch& ops, const config::RunConfig& config, bool on_gpu, int ranks) {
    device::help_out_of_memory({.op_text = [&ops](int op) { return ops.text(op); },
                                .advice = [told = planner::computing_on(config, on_gpu),
                                           ranks] { return planner::to_text(planner::advise(told, ranks)); }});
  }
  OutOfMemoryHelp(const OutOfMemoryHelp&) = delete;
  OutOfMemoryHelp& operator=(const OutOfMemoryHelp&) = delete;
  ~OutOfMemoryHelp() { device::help_out_of_memory({}); }
};

/// Whether updates run where they are seen to begin, on the thread that trains.
bool can_save_in_step(const Job& job) {
  return saves_checkpoints(job.config()) && !job.options().device.is_cuda() &&
         job.config().memory.offload == config::Offload::none;
}

}  // namespace

ExitCode run_training(const config::RunConfig& given, const mpi::Communicator& world, const RunOptions& started) {
  const config::RunConfig config = checkpoint::complete_model(given, world);
  const bool first_rank = world.rank() == 0;

  Supervision supervision(config, world);
  if (started.on_supervised) started.on_supervised();
  Environment environment = [&] {
    const supervise::FileWork files = supervision.file_work("looking at the node", 0);
    return take_environment(config, world);
  }();
  environment.is_trial = started.is_trial;
  environment.log_every = started.log_every;
  Recorder recorder(config, supervision.world(),
                    [&supervision](const std::string& what, std::int64_t step, const auto& work) {
                      const supervise::FileWork files = supervision.file_work(what, step);
                      work();
                    });
  OpWatch ops(supervision);
  JobOptions options = job_options(config, environment);
  std::optional<EmergencySave> emergency;
  options.on_op = [&ops, &emergency](int op, std::int64_t step) {
    ops.begins(op, step);
    if (emergency && ops.updates(op)) emergency->withdraw();
  };
  supervision.apply_to(options);
  Job job(config, supervision.world(), std::move(options));
  ops.watch(job.schedule(), job.model());
  Output output(STDOUT_FILENO);
  Saver saver(job, supervision, environment.threads, output);
  fault::set_rank(world.rank());

  DirectoryLocks locks;
  Stopping stopping(config, supervision.world(), stop_command(environment.batch_job));
  mpi::collective_try(supervision.world(), "lock the output directory", [&] {
    if (!first_rank) return;
    const supervise::FileWork files = supervision.file_work("locking the run's directories", 0);
    locks.take(config);
    if (saves_checkpoints(config))
      stopping.watch_time(config.train.stop_before_limit_seconds,
                          checkpoint::staging_bytes(shards_of(job)).value / job.mesh().replicate);
    supervise::remove_hang_reports(config.run.output);
    warn_of_little_space(config, job.whole_model());
  });
  check_checkpoint_directory(config, supervision.world());

  warn_of_few_cores(environment, supervision.world());
  if (environment.device.gpu) {
    log_nvlink(job.mesh(), *environment.device.gpu, supervision.world());
    choose_device_kernels(config, job.model().held, supervision.world());
  }
  if (first_rank && !environment.device.remark.empty()) log::warning(environment.device.remark);
  const OutOfMemoryHelp help(ops, config, environment.device.gpu.has_value(), world.size());
  Reporter reporter(job, environment, ops, recorder, output);
  TrainingLoop loop(job, supervision, recorder, reporter, saver, stopping, output, emergency);
  try {
    const double load_began = unix_seconds();
    const checkpoint::State state = saver.begin();
    if (first_rank && (state.step < config.train.steps || !std::filesystem::exists(config.run.output + "/run.toml"))) {
      const supervise::FileWork files = supervision.file_work("writing the run file", state.step);
      keep_messages(config.run.output + "/messages.log", false);
      write_run_file(config, started.run_file);  // the start is accepted, and trains
    }
    if (!first_rank) keep_messages(fmt::format("{}/messages-rank{}.log", config.run.output, world.rank()), true);
    ops.begin(state.step);
    data::Datasets train = open_tokens(supervision.world(), config.data, data::Split::train, config.model.vocab_size);
    reporter.begin(state, train, load_began);
    if (can_save_in_step(job)) {
      emergency.emplace(supervision.world(), [&saver](const checkpoint::State& before) { saver.save_in_step(before); });
      stopping.tell(*emergency);
    }
    return loop.run(state, std::move(train));
  } catch (const mpi::CollectiveError&) {
    throw;  // on all ranks alike, before the first step
  } catch (...) {
    mpi::abort_job_for_current_exception();  // here, while lanes run: ending them would wait for the other ranks
  }
}

}  // namespace trireme::train
