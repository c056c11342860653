// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/stopping.hpp"

#include <fmt/format.h>

#include "trireme/base/log.hpp"
#include "trireme/comm/gather.hpp"
#include "trireme/train/checkpointing.hpp"

namespace trireme::train {

Stopping::Stopping(const config::RunConfig& config, const comm::Communicator& world) : world_(world) {
  saves_checkpoints(config) ? (void)signals_.emplace() : release_stop_signals();
}

void Stopping::took(const Durations& durations) {
  for (double Durations::*member :
       {&Durations::step, &Durations::save, &Durations::evaluation_batch, &Durations::exporting})
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
  if (signals_ && !asked_) asked_ = comm::any_rank(world_, StopSignals::received() != 0 || time_is_up());
  return asked_;
}

}  // namespace trireme::train
