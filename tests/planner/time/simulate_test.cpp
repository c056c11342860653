// SPDX-License-Identifier: Apache-2.0
// The simulation of lanes against two slow oracles.
#include "trireme/planner/time/simulate.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "runs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

using schedule::Lane;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  model::Model model;
  schedule::Schedule schedule;
  std::vector<schedule::Need> needs;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto add = [&](const char* name, const std::function<void(config::RunConfig&)>& change) {
    config::RunConfig config = testing::small_run();
    config.batch.global = 8;
    change(config);
    const config::Resolved mesh = config::resolve(config, 4);
    model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
    auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
    auto needs = schedule::needs(step, model);
    out.push_back({name, std::move(model), std::move(step), std::move(needs)});
  };
  add("immediate", [](auto&) {});
  add("deferred", [](auto& c) { c.sync.policy = config::SyncPolicy::deferred; });
  add("replicas", [](auto& c) { c.mesh.replicate = 2; });
  add("recompute", [](auto& c) { c.memory.recompute = config::Recompute::block; });
  add("activations", [](auto& c) { c.memory.activation_offload = true; });
  add("offload", [](auto& c) { c.memory.offload = config::Offload::parameters; });
  add("tensor", [](auto& c) { c.mesh.tensor = 2; });
  return out;
}

std::vector<Cost> random_costs(const Case& run, unsigned seed, bool wires) {
  std::mt19937 random(seed);
  std::vector<Cost> costs;
  for (const schedule::Op& op : run.schedule.ops) {
    const Lane lane = schedule::lane_of(op);
    Cost cost{.seconds = static_cast<double>(random() % 9)};
    if (wires && (lane == Lane::gather || lane == Lane::reduce)) cost.wire = Wire::between;
    if (wires && lane == Lane::tensor) cost.wire = Wire::inside;
    costs.push_back(cost);
  }
  return costs;
}

/// Without shared resources: the longest path, by its definition.
double longest_path_step(const Case& run, const std::vector<Cost>& costs) {
  const int n = static_cast<int>(run.schedule.ops.size());
  std::map<int, double> memo;
  const std::function<double(int)> end = [&](int at) {
    if (at < 0) return 0.0;
    if (const auto found = memo.find(at); found != memo.end()) return found->second;
    double start = 0;
    for (const schedule::Need& need : run.needs)
      if (need.to == at % n) start = std::max(start, end(at - need.distance * n - need.to + need.from));
    return memo[at] = start + costs[static_cast<std::size_t>(at % n)].seconds;
  };
  const auto compute_end = [&](int step) {
    double last = 0;
    for (int op = 0; op < n; ++op)
      if (schedule::lane_of(run.schedule.ops[static_cast<std::size_t>(op)]) == Lane::compute)
        last = std::max(last, end(step * n + op));
    return last;
  };
  return compute_end(2) - compute_end(1);
}

/// Everything in small ticks, lanes as queues and not as needs.
double ticking_step(const Case& run, const std::vector<Cost>& costs, double contention) {
  constexpr double tick = 1.0 / 32;
  const int n = static_cast<int>(run.schedule.ops.size());
  std::vector<double> left(static_cast<std::size_t>(4 * n));
  std::vector<int> state(left.size());  // 0: waits, 1: runs, 2: done
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = costs[i % static_cast<std::size_t>(n)].seconds;
  std::vector<double> compute_end(4);
  const auto at = [&](int i) -> const schedule::Op& { return run.schedule.ops[static_cast<std::size_t>(i % n)]; };
  std::vector<std::vector<int>> before(left.size());  // what must have ended: needs, and the lane's op before
  std::map<Lane, int> last;
  for (int i = 0; i < 4 * n; ++i) {
    auto& all = before[static_cast<std::size_t>(i)];
    for (const schedule::Need& need : run.needs)
      if (need.to == i % n && i / n >= need.distance) all.push_back((i / n - need.distance) * n + need.from);
    const Lane lane = schedule::lane_of(at(i));
    if (last.contains(lane)) all.push_back(last[lane]);
    last[lane] = i;
  }
  const auto ready = [&](int i) {
    return std::ranges::all_of(before[static_cast<std::size_t>(i)],
                               [&](int op) { return state[static_cast<std::size_t>(op)] == 2; });
  };
  double now = 0;
  int done = 0;
  std::vector<int> running;
  const auto has_ended = [&](int i) { return left[static_cast<std::size_t>(i)] <= 1e-9; };
  while (done < 4 * n) {
    for (bool changed = now == 0 || std::ranges::any_of(running, has_ended); changed;) {
      changed = false;
      for (int i = 0; i < 4 * n; ++i) {
        auto& s = state[static_cast<std::size_t>(i)];
        if (s == 0 && ready(i)) s = 1, changed = true;
        if (s == 1 && has_ended(i)) {
          s = 2, changed = true, ++done;
          if (schedule::lane_of(at(i)) == Lane::compute) compute_end[static_cast<std::size_t>(i / n)] = now;
        }
      }
      running.clear();
      for (int i = 0; i < 4 * n; ++i)
        if (state[static_cast<std::size_t>(i)] == 1) running.push_back(i);
    }
    std::map<Wire, int> on;
    for (const int i : running) ++on[costs[static_cast<std::size_t>(i % n)].wire];
    for (const int i : running) {
      const Wire wire = costs[static_cast<std::size_t>(i % n)].wire;
      double speed = wire == Wire::none ? 1 : 1.0 / on[wire];
      if (schedule::lane_of(at(i)) == Lane::compute && on[Wire::between] + on[Wire::inside] > 0)
        speed = 1 / (1 + contention);
      left[static_cast<std::size_t>(i)] -= tick * speed;
    }
    now += tick;
  }
  return compute_end[2] - compute_end[1];
}

TEST(Simulate, IsTheLongestPathWhereNothingIsShared) {
  for (const Case& run : cases())
    for (unsigned seed = 0; seed < 5; ++seed) {
      const auto costs = random_costs(run, seed, false);
      EXPECT_NEAR(simulate(run.schedule, run.needs, costs, 0).seconds, longest_path_step(run, costs), 1e-9)
          << run.name << " seed " << seed;
    }
}

TEST(Simulate, SharesWiresAndSlowsComputeAsAClockThatTicks) {
  for (const Case& run : cases()) {
    const auto costs = random_costs(run, 7, true);
    const double expected = ticking_step(run, costs, 0.5);
    EXPECT_NEAR(simulate(run.schedule, run.needs, costs, 0.5).seconds, expected, 0.01 * expected) << run.name;
  }
}

TEST(Simulate, EverySecondOfComputeIsWorkOrAWaitWithAReason) {
  for (const Case& run : cases()) {
    const auto costs = random_costs(run, 3, true);
    const Timeline timeline = simulate(run.schedule, run.needs, costs, 0.3);
    double sum = timeline.busy[static_cast<std::size_t>(Lane::compute)];
    for (const double wait : timeline.waits) sum += wait;
    EXPECT_NEAR(sum, timeline.seconds, 1e-9) << run.name;
    EXPECT_EQ(timeline.waits[static_cast<std::size_t>(Lane::compute)], 0) << run.name;
    double work = timeline.contention;
    for (std::size_t i = 0; i < costs.size(); ++i)
      if (schedule::lane_of(run.schedule.ops[i]) == Lane::compute) work += costs[i].seconds;
    EXPECT_NEAR(work, timeline.busy[static_cast<std::size_t>(Lane::compute)], 1e-9) << run.name;
  }
}

TEST(Simulate, CommunicationThatFitsBehindComputeCostsNothing) {
  const Case run = cases().front();
  std::vector<Cost> costs(run.schedule.ops.size());
  double compute = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const Lane lane = schedule::lane_of(run.schedule.ops[i]);
    costs[i] = {.seconds = lane == Lane::compute ? 10.0 : 0.01,
                .wire = lane == Lane::compute ? Wire::none : Wire::inside};
    if (lane == Lane::compute) compute += 10;
  }
  EXPECT_LT(simulate(run.schedule, run.needs, costs, 0).seconds, compute + 0.1);
}

/// A clock with one of these would run for ever.
TEST(Simulate, RefusesTimesThatNeverEnd) {
  const Case run = cases().front();
  std::vector<Cost> costs(run.schedule.ops.size(), Cost{.seconds = 1});
  constexpr double infinite = std::numeric_limits<double>::infinity(), none = std::numeric_limits<double>::quiet_NaN();
  for (const double wrong : {infinite, -infinite, none, -1.0}) {
    for (const std::size_t op : {std::size_t{0}, costs.size() / 2, costs.size() - 1}) {
      auto with = costs;
      with[op].seconds = wrong;
      try {
        (void)simulate(run.schedule, run.needs, with, 0);
        ADD_FAILURE() << wrong << " at op " << op;
      } catch (const ConfigError& error) {
        const std::string lane(schedule::to_text(schedule::lane_of(run.schedule.ops[op])));
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("of the {} lane", lane)));
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("takes {} seconds", wrong)));
        EXPECT_THAT(error.what(), HasSubstr("Check the machine file"));
      }
    }
    EXPECT_THROW((void)simulate(run.schedule, run.needs, costs, wrong), ConfigError) << wrong;
  }
  EXPECT_NO_THROW((void)simulate(run.schedule, run.needs, costs, 0));
}

/// A parsed machine has none of these.
TEST(Simulate, RefusesMachinesWithoutARate) {
  const auto refused = [](const std::function<void(Machine&)>& change, const char* key) {
    Machine machine = load_machine("h100");
    change(machine);
    try {
      (void)predict(testing::small_run(), 4, machine);
      ADD_FAILURE() << key;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(key));
    }
  };
  refused([](Machine& m) { m.memory_bandwidth = 0; }, "gpu.memory_tb_s is 0");
  refused([](Machine& m) { m.attention_flops = NAN; }, "gpu.attention_tflops is nan");
  refused([](Machine& m) { m.between.bandwidth = INFINITY; }, "between.bandwidth_gb_s is inf");
  refused([](Machine& m) { m.host_bandwidth = -1; }, "host.bandwidth_gb_s is -1");
  refused([](Machine& m) { m.products.back().rate = 0; }, "gpu.products is 0");
  refused([](Machine& m) { m.products.clear(); }, "gpu.products is 0");
}

}  // namespace
}  // namespace trireme::planner
