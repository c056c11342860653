// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/progress.hpp"

#include <algorithm>

namespace trireme::executor {

// All atomics are sequentially consistent: see Waiter.

Progress::Progress(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs)
    : into_(schedule.ops.size()), ended_(schedule.ops.size()) {
  for (const schedule::Op& op : schedule.ops) {
    all_.push_back(static_cast<int>(all_.size()));
    lane_.push_back(schedule::lane_of(op));
  }
  for (auto& step : ended_) step = -1;
  for (const schedule::Need& need : needs) into_[static_cast<std::size_t>(need.to)].push_back(need);
}

void Progress::Waiter::wake() {
  ++turn;
  turn.notify_one();
}

bool Progress::ready(int op, std::int64_t step) const {
  if (step > open_) return false;
  const auto& needs = into_[static_cast<std::size_t>(op)];
  return std::all_of(needs.begin(), needs.end(), [&](const schedule::Need& need) {
    return ended_[static_cast<std::size_t>(need.from)] >= step - need.distance;
  });
}

bool Progress::wait(int op, std::int64_t step, const std::stop_token& stop) {
  if (ready(op, step)) return !stop.stop_requested();
  Waiter& waiter = waiters_[static_cast<std::size_t>(lane_[static_cast<std::size_t>(op)])];
  const std::stop_callback wake_up(stop, [&] { waiter.wake(); });
  waiter.step = step;
  waiter.op = op;
  bool may_run = false;
  for (;;) {
    const std::uint32_t turn = waiter.turn;
    may_run = ready(op, step);
    if (may_run || stop.stop_requested()) break;
    waiter.turn.wait(turn);
  }
  waiter.op = -1;
  return may_run;
}

void Progress::wake_the_ready() {
  for (Waiter& waiter : waiters_)
    if (const int op = waiter.op; op >= 0 && ready(op, waiter.step)) waiter.wake();
  if (const std::int64_t step = drainer_.step; step >= 0 && drained(step, *drained_ops_)) drainer_.wake();
}

void Progress::done(int op, std::int64_t step) {
  ended_[static_cast<std::size_t>(op)] = step;
  wake_the_ready();
}

void Progress::open(std::int64_t step) {
  open_ = std::max(open_.load(), step);
  wake_the_ready();
}

bool Progress::drained(std::int64_t step, const std::vector<int>& ops) const {
  return std::all_of(ops.begin(), ops.end(), [&](int op) { return ended_[static_cast<std::size_t>(op)] >= step; });
}

void Progress::drain(std::int64_t step, const std::vector<int>& ops) {
  drained_ops_ = &ops;
  drainer_.step = step;
  for (;;) {
    const std::uint32_t turn = drainer_.turn;
    if (drained(step, ops)) break;
    drainer_.turn.wait(turn);
  }
  drainer_.step = -1;
}

}  // namespace trireme::executor
