// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/progress.hpp"

#include <algorithm>

namespace trireme::executor {

Progress::Progress(int ops, const std::vector<schedule::Need>& needs)
    : into_(static_cast<std::size_t>(ops)), ended_(static_cast<std::size_t>(ops), -1) {
  for (const schedule::Need& need : needs) into_[static_cast<std::size_t>(need.to)].push_back(need);
}

bool Progress::ready_locked(int op, std::int64_t step) const {
  if (step > open_) return false;
  const auto& needs = into_[static_cast<std::size_t>(op)];
  return std::all_of(needs.begin(), needs.end(), [&](const schedule::Need& need) {
    return ended_[static_cast<std::size_t>(need.from)] >= step - need.distance;
  });
}

bool Progress::ready(int op, std::int64_t step) {
  const std::scoped_lock lock(mutex_);
  return ready_locked(op, step);
}

bool Progress::wait(int op, std::int64_t step, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  return changed_.wait(lock, stop, [&] { return ready_locked(op, step); });
}

void Progress::done(int op, std::int64_t step) {
  {
    const std::scoped_lock lock(mutex_);
    ended_[static_cast<std::size_t>(op)] = step;
  }
  changed_.notify_all();
}

void Progress::open(std::int64_t step) {
  {
    const std::scoped_lock lock(mutex_);
    open_ = std::max(open_, step);
  }
  changed_.notify_all();
}

void Progress::drain(std::int64_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return std::all_of(ended_.begin(), ended_.end(), [&](std::int64_t ended) { return ended >= step; });
  });
}

}  // namespace trireme::executor
