// SPDX-License-Identifier: Apache-2.0
//
// trireme train: from the command line to the training loop (train/run.cpp).
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.hpp"
#include "cli/run_file.hpp"
#include "cli/run_tokens.hpp"
#include "cli/start/file_progress.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/log.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/start/train_arguments.hpp"
#include "cli/start/trial.hpp"
#include "cli/start/with_mpi.hpp"
#include "train/directory_check.hpp"
#include "train/file_agreement.hpp"
#include "train/preflight.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/overrides.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/supervise/start_signals.hpp"
#include "trireme/supervise/stop_signals.hpp"
#include "trireme/supervise/watchdog.hpp"
#include "trireme/train/console/terminal.hpp"
#include "trireme/train/run.hpp"

namespace trireme::cli {
namespace {

/// Rejects ranks that MPI does not join. All fail alike, so the first prints the message while the others wait.
void refuse_lone_ranks(const mpi::Communicator& world) {
  const std::optional<Launched> by = launched(environment);
  if (by && by->ranks != world.size()) defer_to_first_rank(by, ExitCode::environment);
  check_launcher(by, world.size(), mpi_library());
}

int train(const mpi::Communicator& world, supervise::Watchdog& watchdog, const TrainArguments& arguments,
          std::optional<supervise::StartSignals>& start_signals) {
  // A rank that is stuck before the run begins, in a file system or in a library, ends the job as one that stops later.
  constexpr const char* reading = "reading the run file";
  watchdog.mark(reading, supervise::Watchdog::no_step);
  const bool progress_line = world.rank() == 0 && train::rewrites_lines(train::probe_terminal());
  install_log(
      {.rank = world.rank(), .host = mpi::hostname(), .clears_line = progress_line && train::stderr_is_terminal()},
      environment("TRIREME_LOG"));
  log::debug("MPI is up");
  refuse_lone_ranks(world);
  fault::set_rank(world.rank());
  if (world.rank() == 0 && fault::armed()) {
    log::warning("TRIREME_FAULT is set: this run will break on purpose");
    (void)fault::point("train.begin");  // reports a malformed value once
  }
  const double start_timeout = config::read_overrides(arguments.run_file.overrides).comm.timeout_seconds;
  const config::RunConfig given = read_run_file(
      world, arguments, file_progress(start_timeout, [&] { watchdog.mark(reading, supervise::Watchdog::no_step); }));
  const double timeout = given.comm.timeout_seconds;
  constexpr const char* checking = "checking the run file, the weights and the data";
  watchdog.set_timeout(timeout);
  watchdog.mark(checking, supervise::Watchdog::no_step);
  const int node_ranks = world.node().size();
  std::optional<TrialDirectory> trial;
  const std::string text = mpi::on_first_rank(
      world, "check the run file, the weights and the data",
      [&] {
        if (arguments.try_steps == 0) return train::preflight(given, world.size(), node_ranks);
        trial.emplace();
        return train::preflight(trial_of(given, arguments.try_steps, trial->output()), world.size(), node_ranks);
      },
      file_progress(timeout, [&] { watchdog.mark(checking, supervise::Watchdog::no_step); }));
  const std::string& path = arguments.run_file.path;
  const auto tokenizing = [&] { watchdog.mark("tokenizing the text of the run", supervise::Watchdog::no_step); };
  const config::RunConfig sources = train::with_common_output(config::parse_run_file(text, path), world);
  const config::RunConfig config = with_tokens(world, sources, timeout, tokenizing);
  if (config::resolves_sources(sources))
    (void)mpi::on_first_rank(
        world, "check the data",
        [&] {
          train::check_data(config);
          return std::string();
        },
        file_progress(timeout, tokenizing));
  constexpr const char* comparing = "comparing the files that ranks read";
  watchdog.mark(comparing, supervise::Watchdog::no_step);
  const auto still_comparing = [&] { watchdog.mark(comparing, supervise::Watchdog::no_step); };
  const std::string inputs = mpi::on_first_rank(
      world, "list the files that ranks read", [&] { return train::encode(train::input_paths(config)); },
      file_progress(timeout, still_comparing));
  train::agree_on_input_files(world, train::decode_inputs(inputs), timeout, still_comparing);
  log::debug("the run file, the weights and the data are right");
  watchdog.mark("starting the libraries", supervise::Watchdog::no_step);
  const Libraries libraries(world, config.device.threads);
  log::debug("the libraries are up");
  start_signals.reset();
  watchdog.mark("setting up the job", supervise::Watchdog::no_step);
  const bool tries = arguments.try_steps > 0;
  const ExitCode code = train::run_training(
      config, world,
      {.run_file = path, .is_trial = tries, .log_every = tries ? 1 : arguments.log_every, .on_supervised = [&] {
         watchdog.rest();
       }});
  watchdog.mark("ending the run", supervise::Watchdog::at_end);
  if (trial && code == ExitCode::done) fmt::print("{}", trial_verdict(given, world.size(), trial->output()));
  return static_cast<int>(code);
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<TrainArguments>();
  add_train_command(app, *arguments)->callback([&chosen, arguments] {
    chosen = [arguments] {
      ignore_closed_output();
      require_process_manager();
      supervise::block_stop_signals();
      std::optional<supervise::StartSignals> start_signals(std::in_place);
      const double timeout_seconds = config::read_overrides(arguments->run_file.overrides).comm.timeout_seconds;
      return with_mpi(timeout_seconds, [&](const mpi::Communicator& world, supervise::Watchdog& watchdog) {
        return train(world, watchdog, *arguments, start_signals);
      });
    };
  });
}

}  // namespace trireme::cli
