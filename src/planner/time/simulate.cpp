// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/simulate.hpp"

#include <algorithm>
#include <limits>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

constexpr int steps = 4;
constexpr int observed = 2;  ///< two steps to settle before it, one to begin behind it

/// What waits for one op of a step: a flat list of (op, step distance).
struct Successors {
  std::vector<int> first;
  std::vector<std::pair<int, int>> to;

  Successors(int ops, const std::vector<schedule::Need>& needs)
      : first(static_cast<std::size_t>(ops) + 1), to(needs.size()) {
    for (const schedule::Need& need : needs) ++first[static_cast<std::size_t>(need.from) + 1];
    for (std::size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    std::vector<int> next(first.begin(), first.end() - 1);
    for (const schedule::Need& need : needs)
      to[static_cast<std::size_t>(next[static_cast<std::size_t>(need.from)]++)] = {need.to, need.distance};
  }
};

class Clock {
 public:
  Clock(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs, const std::vector<Cost>& costs,
        double contention)
      : costs_(costs),
        contention_(contention),
        ops_(static_cast<int>(schedule.ops.size())),
        successors_(ops_, needs),
        waiting_(static_cast<std::size_t>(ops_ * steps)),
        intervals_(static_cast<std::size_t>(ops_ * steps)) {
    for (const schedule::Op& op : schedule.ops) lane_.push_back(schedule::lane_of(op));
    for (int step = 0; step < steps; ++step)
      for (const schedule::Need& need : needs)
        if (need.distance <= step) ++waiting_[index(step, need.to)];
  }

  std::vector<Interval> run() {
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      if (waiting_[i] == 0) start(i, -1);
    while (!running_.empty()) advance();
    invariant(std::all_of(waiting_.begin(), waiting_.end(), [](int n) { return n == 0; }),
              "a schedule's needs have a cycle");
    return std::move(intervals_);
  }
  [[nodiscard]] Lane lane(int op) const { return lane_[static_cast<std::size_t>(op)]; }

 private:
  struct Running {
    std::size_t at;
    double left;  ///< seconds of work
    double speed = 1;
  };

  [[nodiscard]] std::size_t index(int step, int op) const {
    return static_cast<std::size_t>(std::int64_t{step} * ops_ + op);
  }
  [[nodiscard]] const Cost& cost(std::size_t at) const { return costs_[at % static_cast<std::size_t>(ops_)]; }
  [[nodiscard]] bool computes(std::size_t at) const {
    return lane_[at % static_cast<std::size_t>(ops_)] == Lane::compute;
  }

  void start(std::size_t at, int cause) {
    intervals_[at] = {now_, now_, cause};
    running_.push_back({at, cost(at).seconds});
  }

  void set_speeds() {
    std::array<int, 3> on_wire{};
    for (const Running& op : running_) ++on_wire[static_cast<std::size_t>(cost(op.at).wire)];
    const bool communicates = on_wire[1] + on_wire[2] > 0;
    for (Running& op : running_) {
      const Wire wire = cost(op.at).wire;
      op.speed = wire != Wire::none                ? 1.0 / on_wire[static_cast<std::size_t>(wire)]
                 : computes(op.at) && communicates ? 1 / (1 + contention_)
                                                   : 1;
    }
  }

  /// To the next end of an op.
  void advance() {
    set_speeds();
    double soonest = std::numeric_limits<double>::infinity();
    for (const Running& op : running_) soonest = std::min(soonest, op.left / op.speed);
    now_ += soonest;
    std::vector<std::size_t> ended;
    for (Running& op : running_) {
      op.left -= soonest * op.speed;
      if (op.left <= 1e-15 * now_) ended.push_back(op.at);
    }
    std::erase_if(running_, [&](const Running& op) { return op.left <= 1e-15 * now_; });
    for (const std::size_t at : ended) intervals_[at].end = now_;
    for (const std::size_t at : ended) release(at);
  }

  void release(std::size_t at) {
    const int op = static_cast<int>(at) % ops_, step = static_cast<int>(at) / ops_;
    const auto from = static_cast<std::size_t>(op);
    for (int i = successors_.first[from]; i < successors_.first[from + 1]; ++i) {
      const auto [to, distance] = successors_.to[static_cast<std::size_t>(i)];
      if (step + distance >= steps) continue;
      const std::size_t next = index(step + distance, to);
      if (--waiting_[next] == 0) start(next, op);
    }
  }

  const std::vector<Cost>& costs_;
  double contention_;
  int ops_;
  Successors successors_;
  std::vector<Lane> lane_;
  std::vector<int> waiting_;
  std::vector<Interval> intervals_;
  std::vector<Running> running_;
  double now_ = 0;
};

}  // namespace

Timeline simulate(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                  const std::vector<Cost>& costs, double contention) {
  invariant(costs.size() == schedule.ops.size(), "every op has a cost");
  Clock clock(schedule, needs, costs, contention);
  const std::vector<Interval> all = clock.run();
  const auto ops = static_cast<std::ptrdiff_t>(schedule.ops.size());
  Timeline out{.ops = {all.begin() + observed * ops, all.begin() + (observed + 1) * ops}};
  double zero = 0;
  for (std::ptrdiff_t op = 0; op < ops; ++op)
    if (clock.lane(static_cast<int>(op)) == Lane::compute)
      zero = std::max(zero, all[static_cast<std::size_t>((observed - 1) * ops + op)].end);
  double compute_end = 0;
  for (std::size_t op = 0; op < out.ops.size(); ++op) {
    Interval& interval = out.ops[op];
    interval.begin -= zero;
    interval.end -= zero;
    const Lane lane = clock.lane(static_cast<int>(op));
    out.busy[static_cast<std::size_t>(lane)] += interval.end - interval.begin;
    if (lane != Lane::compute) continue;
    out.contention += interval.end - interval.begin - costs[op].seconds;
    const double gap = interval.begin - compute_end;
    if (gap > 0 && interval.cause >= 0) out.waits[static_cast<std::size_t>(clock.lane(interval.cause))] += gap;
    compute_end = interval.end;
  }
  out.seconds = compute_end;
  return out;
}

}  // namespace trireme::planner
