// SPDX-License-Identifier: Apache-2.0
#include "train/save/stopping.hpp"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "trireme/base/log.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {

namespace {

const char* name_of(int signal) {
  switch (signal) {
    case SIGUSR1: return "SIGUSR1";
    case SIGUSR2: return "SIGUSR2";
    case SIGTERM: return "SIGTERM";
    case SIGHUP: return "SIGHUP";
    default: return "SIGINT";
  }
}

}  // namespace

Stopping::Stopping(const config::RunConfig& config, const mpi::Communicator& world, std::string stop_command)
    : world_(world), stop_command_(std::move(stop_command)) {
  if (!saves_checkpoints(config)) {
    supervise::unblock_stop_signals();
    if (world.rank() == 0 && config.train.stop_before_limit_seconds)
      log::warning(
          "train.stop_before_limit_seconds has no effect: the run saves no checkpoint, so it does not stop before the "
          "time limit, which ends it. Set checkpoint.every, or checkpoint.at_end = true");
    return;
  }
  signals_.emplace([this](int signal) { heard(signal); });
  if (world.rank() == 0 && config.checkpoint.every == 0)
    log::warning(
        fmt::format("checkpoint.every = 0: {} is saved before the last step unless the run is stopped by a signal; set "
                    "it so that a crash costs little",
                    config.checkpoint.keep_best ? "only the best checkpoint" : "nothing"));
}

/// Launchers send SIGTERM before they kill. Other signals leave the time of a step.
void Stopping::heard(int signal) {
  EmergencySave* const emergency = emergency_;
  if (signal == SIGTERM && emergency != nullptr) emergency->request();
  announce(signal);
}

/// A launcher may leave a step less time than it takes: the reaction to the signal is logged at once.
void Stopping::announce(int signal) {
  if (world_.rank() != 0 || announced_.test_and_set()) return;
  const double seconds = step_seconds_;
  log::info(fmt::format(
      "{}: saving and stopping after this step{}{}. Ctrl-C leaves the ranks of mpirun one second; {} leaves them the "
      "time they need",
      name_of(signal), seconds > 0 ? fmt::format(" (up to {:.2g} s)", seconds) : "",
      signal == SIGTERM && emergency_ != nullptr && seconds > 0 ? "; the one before it is saved at once if all ranks "
                                                                  "got the signal"
                                                                : "",
      stop_command_));
}

void Stopping::took(const supervise::Durations& durations) {
  for (double supervise::Durations::*member :
       {&supervise::Durations::step, &supervise::Durations::save, &supervise::Durations::evaluation_batch,
        &supervise::Durations::exporting})
    longest_.*member = std::max(longest_.*member, durations.*member);
  step_seconds_ = longest_.step;
}

bool Stopping::time_is_up() {
  if (!time_limit_ || !time_limit_->reached(longest_)) return false;
  if (!out_of_time_)
    log::info(fmt::format(
        "{:.0f} s are left before the time limit, a step and a save may take {:.0f} s: saving and stopping now",
        time_limit_->left(), time_limit_->reserve(longest_)));
  return out_of_time_ = true;
}

bool Stopping::asked_after_save() {
  if (!signals_ || asked()) {
    replaced_.clear();  // there is another reason
    return asked_;
  }
  if (!replaced_.empty()) log::warning(fmt::format("saved: the run stops to replace node {}, a straggler", replaced_));
  return asked_ = mpi::any_rank(world_, !replaced_.empty());
}

bool Stopping::asked() {
  if (!signals_ || asked_) return asked_;
  const int signal = supervise::StopSignals::received();
  if (signal != 0) heard(signal);
  asked_ = mpi::any_rank(world_, signal != 0 || time_is_up());
  return asked_;
}

}  // namespace trireme::train
