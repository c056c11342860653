// SPDX-License-Identifier: Apache-2.0
#include "train/save/stopping.hpp"

#include <fmt/format.h>

#include "trireme/base/log.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/train/save/checkpointing.hpp"

namespace trireme::train {

Stopping::Stopping(const config::RunConfig& config, const mpi::Communicator& world) : world_(world) {
  saves_checkpoints(config) ? (void)signals_.emplace() : supervise::unblock_stop_signals();
}

void Stopping::took(const supervise::Durations& durations) {
  for (double supervise::Durations::*member :
       {&supervise::Durations::step, &supervise::Durations::save, &supervise::Durations::evaluation_batch,
        &supervise::Durations::exporting})
    longest_.*member = std::max(longest_.*member, durations.*member);
}

bool Stopping::time_is_up() {
  if (!time_limit_ || !time_limit_->reached(longest_)) return false;
  if (!out_of_time_)
    log::info(fmt::format(
        "{:.0f} s are left before the time limit, a step and a save may take {:.0f} s: saving and stopping now",
        time_limit_->left(), time_limit_->reserve(longest_)));
  return out_of_time_ = true;
}

bool Stopping::asked() {
  if (signals_ && !asked_) asked_ = mpi::any_rank(world_, supervise::StopSignals::received() != 0 || time_is_up());
  return asked_;
}

}  // namespace trireme::train
