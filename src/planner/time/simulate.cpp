// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>

#include "planner/time/meetings.hpp"
#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;

constexpr int steps = 4;
constexpr int observed = 2;  ///< two steps to settle before it, one to begin after it

/// Dependents of one op of a step: a flat list of (op, step distance).
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

/// The ops of all ranks in one list.
struct Joined {
  std::vector<Lane> lane;
  std::vector<int> rank;
  std::vector<Cost> costs;
  std::vector<schedule::Need> needs;

  explicit Joined(std::span<const RankStep> ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const RankStep& step = ranks[r];
      invariant(step.costs.size() == step.schedule.ops.size(), "every op has a cost");
      const auto first = static_cast<int>(lane.size());
      for (schedule::Need need : step.needs) {
        need.from += first;
        need.to += first;
        needs.push_back(need);
      }
      for (const schedule::Op& op : step.schedule.ops) lane.push_back(schedule::lane_of(op));
      rank.resize(lane.size(), static_cast<int>(r));
      costs.insert(costs.end(), step.costs.begin(), step.costs.end());
    }
    const std::vector<schedule::Need> between = needs_between(ranks, needs);
    needs.insert(needs.end(), between.begin(), between.end());
  }
};

bool is_time(double value) { return std::isfinite(value) && value >= 0; }

/// With other times the clock would never reach the end of an op.
void expect_times(const Joined& joined, double contention) {
  constexpr const char* allowed =
      "allowed are finite numbers from 0 on. Check the machine file: a rate that the run needs and that is 0 or "
      "missing there makes times without end.";
  if (!is_time(contention))
    throw ConfigError(fmt::format("a predicted step has a contention of {} seconds a second; {}", contention, allowed));
  for (std::size_t op = 0; op < joined.costs.size(); ++op)
    if (const double seconds = joined.costs[op].seconds; !is_time(seconds))
      throw ConfigError(fmt::format("an op of the {} lane of a predicted step takes {} seconds; {}",
                                    schedule::to_text(joined.lane[op]), seconds, allowed));
}

class Clock {
 public:
  Clock(Joined joined, double contention)
      : joined_(std::move(joined)),
        contention_(contention),
        ops_(static_cast<int>(joined_.lane.size())),
        successors_(ops_, joined_.needs),
        waiting_(static_cast<std::size_t>(ops_ * steps)),
        intervals_(static_cast<std::size_t>(ops_ * steps)),
        ranks_(static_cast<std::size_t>(joined_.rank.empty() ? 0 : joined_.rank.back() + 1)) {
    for (int step = 0; step < steps; ++step)
      for (const schedule::Need& need : joined_.needs)
        if (need.distance <= step) ++waiting_[index(step, need.to)];
  }

  std::vector<Interval> run() {
    for (std::size_t i = 0; i < waiting_.size(); ++i)
      if (waiting_[i] == 0) start(i, -1);
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) foresee(rank);
    while (!ends_.empty()) advance();
    invariant(std::all_of(waiting_.begin(), waiting_.end(), [](int n) { return n == 0; }),
              "a schedule's needs have a cycle");
    return std::move(intervals_);
  }
  [[nodiscard]] Lane lane(int op) const { return joined_.lane[static_cast<std::size_t>(op)]; }

 private:
  struct Running {
    std::size_t at;
    double left;  ///< seconds of work
    double speed = 1;
  };
  /// The ops in progress on one rank. Their speeds hold until one of its ops starts or ends.
  struct Rank {
    std::vector<Running> running;
    double since = 0;          ///< when `left` was right
    std::int64_t version = 0;  ///< of its speeds: an end that was foreseen with older ones does not count
    bool changed = false;
  };
  /// The first end on a rank, as its speeds are.
  struct End {
    double time;
    std::size_t rank;
    std::int64_t version;
    [[nodiscard]] bool operator>(const End& other) const {
      return std::tie(time, rank) > std::tie(other.time, other.rank);
    }
  };

  [[nodiscard]] std::size_t index(int step, int op) const {
    return static_cast<std::size_t>(std::int64_t{step} * ops_ + op);
  }
  [[nodiscard]] std::size_t op_of(std::size_t at) const { return at % static_cast<std::size_t>(ops_); }
  [[nodiscard]] const Cost& cost(std::size_t at) const { return joined_.costs[op_of(at)]; }
  [[nodiscard]] bool computes(std::size_t at) const { return joined_.lane[op_of(at)] == Lane::compute; }

  void start(std::size_t at, int cause) {
    intervals_[at] = {now_, now_, cause};
    const auto rank = static_cast<std::size_t>(joined_.rank[op_of(at)]);
    work_until_now(rank);
    ranks_[rank].running.push_back({at, cost(at).seconds});
  }

  void work_until_now(std::size_t rank) {
    Rank& of = ranks_[rank];
    for (Running& op : of.running) op.left -= (now_ - of.since) * op.speed;
    of.since = now_;
    if (!std::exchange(of.changed, true)) changed_.push_back(rank);
  }

  void set_speeds(Rank& rank) const {
    std::array<int, 3> on_wire{};
    for (const Running& op : rank.running) ++on_wire[static_cast<std::size_t>(cost(op.at).wire)];
    const bool communicates = on_wire[1] + on_wire[2] > 0;
    double host = 0;
    for (const Running& op : rank.running) host += cost(op.at).host;
    for (Running& op : rank.running) {
      const Wire wire = cost(op.at).wire;
      op.speed = wire != Wire::none                ? 1.0 / on_wire[static_cast<std::size_t>(wire)]
                 : computes(op.at) && communicates ? 1 / (1 + contention_)
                                                   : 1;
      if (cost(op.at).host > 0) op.speed /= std::max(1.0, host);
    }
  }

  void foresee(std::size_t rank) {
    Rank& of = ranks_[rank];
    of.changed = false;
    ++of.version;
    if (of.running.empty()) return;
    set_speeds(of);
    double soonest = std::numeric_limits<double>::infinity();
    for (const Running& op : of.running) soonest = std::min(soonest, op.left / op.speed);
    ends_.push({now_ + std::max(0.0, soonest), rank, of.version});
  }

  /// To the next end of an op.
  void advance() {
    const End end = ends_.top();
    ends_.pop();
    Rank& rank = ranks_[end.rank];
    if (end.version != rank.version) return;
    now_ = end.time;
    changed_.clear();
    work_until_now(end.rank);
    const auto has_ended = [&](const Running& op) { return op.left <= 1e-14 * now_ * op.speed; };
    ended_.clear();
    for (const Running& op : rank.running)
      if (has_ended(op)) ended_.push_back(op.at);
    std::erase_if(rank.running, has_ended);
    for (const std::size_t at : ended_) intervals_[at].end = now_;
    for (const std::size_t at : ended_) release(at);
    for (const std::size_t changed : changed_) foresee(changed);
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

  Joined joined_;
  double contention_;
  int ops_;
  Successors successors_;
  std::vector<int> waiting_;
  std::vector<Interval> intervals_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> changed_, ended_;  ///< by the end that is now
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  double now_ = 0;
};

/// The observed step of one rank, whose ops are `first` and those after it.
Timeline timeline_of(const Clock& clock, const RankStep& rank, const std::vector<Interval>& all, int all_ops,
                     int first) {
  const auto ops = static_cast<int>(rank.schedule.ops.size());
  const auto begin = all.begin() + std::ptrdiff_t{observed} * all_ops + first;
  Timeline out{.ops = {begin, begin + ops}};
  double zero = 0;
  for (int op = 0; op < ops; ++op)
    if (clock.lane(first + op) == Lane::compute) zero = std::max(zero, (begin + op - all_ops)->end);
  double compute_end = 0;
  for (int op = 0; op < ops; ++op) {
    Interval& interval = out.ops[static_cast<std::size_t>(op)];
    interval.begin -= zero;
    interval.end -= zero;
    const Lane lane = clock.lane(first + op);
    const int cause = std::exchange(interval.cause, interval.cause < 0 ? -1 : interval.cause - first);
    if (interval.cause >= ops) interval.cause = -1;
    out.busy[static_cast<std::size_t>(lane)] += interval.end - interval.begin;
    if (lane != Lane::compute) continue;
    out.contention += interval.end - interval.begin - rank.costs[static_cast<std::size_t>(op)].seconds;
    const double gap = interval.begin - compute_end;
    if (gap > 0 && cause >= 0) out.waits[static_cast<std::size_t>(clock.lane(cause))] += gap;
    compute_end = interval.end;
  }
  out.seconds = compute_end;
  return out;
}

}  // namespace

std::vector<Timeline> simulate(std::span<const RankStep> ranks, double contention) {
  Joined joined(ranks);
  expect_times(joined, contention);
  Clock clock(std::move(joined), contention);
  const std::vector<Interval> all = clock.run();
  const auto all_ops = static_cast<int>(all.size()) / steps;
  std::vector<Timeline> out;
  int first = 0;
  for (const RankStep& rank : ranks) {
    out.push_back(timeline_of(clock, rank, all, all_ops, first));
    first += static_cast<int>(rank.schedule.ops.size());
  }
  return out;
}

Timeline simulate(const schedule::Schedule& schedule, const std::vector<schedule::Need>& needs,
                  const std::vector<Cost>& costs, double contention) {
  const RankStep rank{schedule, needs, costs};
  return std::move(simulate(std::span(&rank, 1), contention).front());
}

}  // namespace trireme::planner
