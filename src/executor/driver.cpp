// SPDX-License-Identifier: Apache-2.0
#include "trireme/executor/driver.hpp"

#include <chrono>
#include <utility>
#include <variant>

#include "executor/lane_thread.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

bool waits_for_pipeline(const schedule::Op& op) {
  return std::holds_alternative<schedule::Take>(op) || std::holds_alternative<schedule::Put>(op) ||
         std::holds_alternative<schedule::Send>(op) || std::holds_alternative<schedule::Receive>(op);
}

Driver::Driver(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs, bool lane_threads,
               Runner runner)
    : lane_threads_(lane_threads), runner_(std::move(runner)), progress_(schedule, needs) {
  last_op_.fill(-1);
  for (const schedule::Op& op : schedule.ops) {
    lane_.push_back(schedule::lane_of(op));
    of_pipeline_.push_back(waits_for_pipeline(op));
    last_op_[static_cast<std::size_t>(lane_.back())] = static_cast<int>(lane_.size()) - 1;
  }
  if (!lane_threads_) return;
  for (const schedule::Lane lane : schedule::all_lanes)
    if (lane != schedule::Lane::compute && last_op_[static_cast<std::size_t>(lane)] >= 0)
      lanes_.emplace_back([this, lane](const std::stop_token& stop) { lane_loop(lane, stop); });
}

Idle Driver::run(std::int64_t step, bool last) {
  progress_.open(last ? step : step + 1);
  idle_ = {};
  try {
    for (int op = 0; op < static_cast<int>(lane_.size()); ++op) {
      const bool computes = lane(op) == schedule::Lane::compute;
      if (!computes && lane_threads_) continue;
      const std::vector<int>* const together = runner_.together ? runner_.together(op, step) : nullptr;
      if (together != nullptr && together->front() != op) continue;  // handed over with its first
      const auto before = Clock::now();
      if (lane_threads_)
        invariant(progress_.wait(op, step, {}), "the compute lane is never asked to stop");
      else
        invariant(progress_.ready(op, step), "the schedule's order satisfies its needs");
      double& idle = of_pipeline_[static_cast<std::size_t>(op)] ? idle_.pipeline : idle_.collectives;
      const auto begin = Clock::now();
      if (computes) idle += seconds(begin - before);
      do_ops(together != nullptr ? std::span(*together) : std::span(&op, 1), step);
      if (!computes) idle += seconds(Clock::now() - begin);
    }
  } catch (...) {
    if (runner_.on_exception) runner_.on_exception();
    throw;
  }
  if (last) progress_.drain(step);
  return idle_;
}

void Driver::do_ops(std::span<const int> ops, std::int64_t step) {
  runner_.run(ops, step);
  for (const int op : ops) {
    if (runner_.on_lane_end && last_op_[static_cast<std::size_t>(lane(op))] == op) runner_.on_lane_end(lane(op), step);
    progress_.done(op, step);
  }
}

void Driver::lane_loop(schedule::Lane mine, const std::stop_token& stop) {
  prefer_short_slices();
  try {
    if (runner_.on_thread) runner_.on_thread();
    for (std::int64_t step = 0;; ++step)
      for (int op = 0; op < static_cast<int>(lane_.size()); ++op) {
        if (lane(op) != mine) continue;
        if (!progress_.wait(op, step, stop)) return;
        do_ops(std::span(&op, 1), step);
      }
  } catch (...) {
    if (runner_.on_exception) runner_.on_exception();
  }
}

}  // namespace trireme::executor
