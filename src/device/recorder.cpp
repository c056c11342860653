// SPDX-License-Identifier: Apache-2.0
#include "device/recorder.hpp"

#include <chrono>

namespace trireme::device {
namespace {

thread_local Operation operation_of_this_thread;

}  // namespace

void set_operation(Operation operation) { operation_of_this_thread = operation; }
Operation current_operation() { return operation_of_this_thread; }

void Recorder::start(std::size_t most) {
  const std::scoped_lock guard(lock_);
  events_.clear();
  live_.clear();
  dropped_ = 0;
  most_ = most;
  on_ = most > 0;
}

void Recorder::add(MemoryEvent event) noexcept {
  using namespace std::chrono;
  event.operation = operation_of_this_thread;
  event.microseconds = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  const std::scoped_lock guard(lock_);
  if (most_ == 0) return;
  try {
    if (event.allocated)
      live_[event.address] = event;
    else if (live_.erase(event.address) == 0)
      return;  // allocated before the recording began
    events_.push_back(event);
  } catch (...) {  // no memory for the books: better a gap in them than the end of the run
    ++dropped_;
  }
  if (events_.size() <= most_) return;
  events_.pop_front();
  ++dropped_;
}

MemoryHistory Recorder::history() const {
  const std::scoped_lock guard(lock_);
  MemoryHistory history{.events = {events_.begin(), events_.end()}, .dropped = dropped_};
  for (const auto& [address, event] : live_) history.live.push_back(event);
  return history;
}

Recorder& recorder() {
  static Recorder& one = *new Recorder;
  return one;
}

void record_memory(std::size_t most) { recorder().start(most); }
MemoryHistory memory_history() { return recorder().history(); }

}  // namespace trireme::device
