// SPDX-License-Identifier: Apache-2.0
#include "train/save/emergency_save.hpp"

#include <cstdint>
#include <system_error>
#include <utility>

#include "trireme/base/log.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::train {
namespace {

constexpr std::chrono::milliseconds between_tests{2}, between_votes{20};

}  // namespace

EmergencySave::EmergencySave(const mpi::Communicator& world, Write write, std::chrono::milliseconds patience)
    : world_(world.duplicate()), ending_(world.duplicate()), write_(std::move(write)), patience_(patience) {
  bool failed = false;
  try {
    thread_ = std::jthread([this](const std::stop_token& ending) { serve(ending); });
  } catch (const std::system_error&) {
    failed = true;
  }
  if (!mpi::any_rank(ending_, failed)) return;
  if (world_.rank() == 0)
    log::warning(
        "a rank has no thread to save the last finished step at a signal: a stop takes as long as the step; raise "
        "ulimit -u");
  thread_ = {};  // joins
}

void EmergencySave::offer(const checkpoint::State& state) {
  const std::scoped_lock lock(offer_mutex_);
  offered_ = state;
}

void EmergencySave::withdraw() {
  const std::scoped_lock lock(offer_mutex_);
  offered_.reset();
}

void EmergencySave::request() {
  const std::scoped_lock lock(mutex_);
  if (closing_) return;
  takes_part_ = true;
  wake_.notify_all();
}

void EmergencySave::close() {
  if (!thread_.joinable()) return;
  bool waits = false;
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    waits = takes_part_;
    wake_.notify_all();
  }
  // A rank that waits for the others needs their messages.
  if (mpi::any_rank(ending_, waits)) {
    const std::scoped_lock lock(mutex_);
    takes_part_ = true;
    wake_.notify_all();
  } else {
    thread_.request_stop();
  }
  thread_.join();
}

/// True once all ranks are here; false when this rank's job ends by an exception.
bool EmergencySave::every_rank_takes_part(const std::stop_token& ending) const {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibarrier(world_.handle(), &request), "wait for the signal to reach all ranks");
  for (int done = 0;; std::this_thread::sleep_for(between_tests)) {
    mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "wait for the signal to reach all ranks");
    if (done != 0) return true;
    if (ending.stop_requested()) return false;
  }
}

/// Saves where all ranks offer the same step: one may still be in the updates of the step before, or in those of its
/// own. Whether nothing is left to be done, on all ranks alike.
bool EmergencySave::is_over() {
  bool closing = false;
  {
    const std::scoped_lock lock(mutex_);
    closing = closing_;
  }
  const std::scoped_lock lock(offer_mutex_);
  if (mpi::any_rank(world_, closing)) return true;
  const auto step = static_cast<std::uint64_t>(offered_ ? offered_->step : 0);
  const bool differs = mpi::sum_words(world_, step) != step * static_cast<std::uint64_t>(world_.size());
  if (mpi::any_rank(world_, !offered_ || differs)) return false;
  write_(*offered_);
  return true;
}

void EmergencySave::serve(const std::stop_token& ending) {
  try {
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, ending, [this] { return takes_part_; })) return;
      wake_.wait_for(lock, ending, patience_, [this] { return closing_; });
    }
    if (!every_rank_takes_part(ending)) return;
    while (!is_over()) std::this_thread::sleep_for(between_votes);
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}

}  // namespace trireme::train
