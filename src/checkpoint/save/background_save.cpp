// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/save/background_save.hpp"

#include <fmt/format.h>

#include <chrono>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/seconds.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::checkpoint {
namespace {

using Clock = std::chrono::steady_clock;

/// Value of the promise; false if the promising rank failed.
bool told(std::future<bool>& promised) {
  try {
    return promised.get();
  } catch (const std::future_error&) {
    return false;
  }
}

}  // namespace

BackgroundSave::BackgroundSave(const mpi::Communicator& world)
    : world_(world.duplicate()), ranks_on_node_(world.node().size()) {}

BackgroundSave::~BackgroundSave() = default;

bool BackgroundSave::start(const Shards& shards, const State& state, const SaveOptions& options) {
  invariant(!started(), "one save at a time");
  if (no_memory_) return false;
  const auto begin = Clock::now();
  const auto allocate = [&] {
    if (!staging_) staging_.emplace(shards, ranks_on_node_);
  };
  if (!all_can("allocate the copy of the state", allocate)) return false;
  staging_->copy(shards);
  running_ = std::make_unique<Running>();
  running_->end = {.step = state.step, .saved = {}, .stall_seconds = seconds_since(begin), .failure = {}};
  // On a rank that has no thread left the save would wait forever: none begins before all have one.
  std::promise<bool> every_rank_has_one;
  const auto start_thread = [&] {
    try {
      (void)fault::point("ckpt.thread");
      running_->thread = std::jthread([this, copy = staging_->shards(shards), state, options, begin,
                                       go = every_rank_has_one.get_future()]() mutable {
        if (told(go)) write(copy, state, options, begin);
      });
    } catch (const std::exception& error) {
      throw EnvironmentError(fmt::format("no thread can be started ({}); raise ulimit -u or ulimit -v", error.what()));
    }
  };
  if (!all_can("start a thread for the save", start_thread)) {
    every_rank_has_one.set_value(false);
    running_.reset();  // joins
    return false;
  }
  every_rank_has_one.set_value(true);
  return true;
}

bool BackgroundSave::all_can(std::string_view what, const std::function<void()>& prepare) {
  try {
    mpi::collective_try(world_, what, prepare);
    return true;
  } catch (const mpi::CollectiveError& error) {
    if (error.code() != ExitCode::environment) throw Error(error.code(), error.what());
    staging_.reset();
    device::trim();  // libraries allocate outside the cache
    no_memory_ = true;
    if (world_.rank() == 0)
      log::warning(fmt::format("checkpoint.async: the training waits for its saves: {}", error.what()));
    return false;
  }
}

void BackgroundSave::write(const Shards& copy, const State& state, const SaveOptions& options,
                           Clock::time_point begin) {
  fault::set_step_of_thread(static_cast<long>(state.step - 1));
  Ended& end = running_->end;
  try {
    end.saved = save(world_, copy, state, options);
  } catch (...) {
    end.failure = std::current_exception();
  }
  end.seconds = seconds_since(begin);
  running_->done = true;
  running_->written.set_value();
}

bool BackgroundSave::ended() const { return running_->done; }

bool BackgroundSave::ends_within(double seconds) const {
  return running_->whole.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

std::int64_t BackgroundSave::step() const { return running_->end.step; }

Ended BackgroundSave::take() {
  running_->thread.join();
  Ended end = std::move(running_->end);
  running_.reset();
  return end;
}

}  // namespace trireme::checkpoint
