// SPDX-License-Identifier: Apache-2.0
//
// Steps launched as graphs compute what steps launched op by op compute. Without a GPU: what stands in for its graphs
// runs again what was recorded, so this is about what is launched when, for whom, and on which tokens.
//
// ranks: 1 2
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "executor/segments.hpp"
#include "steps.hpp"

namespace trireme::executor::graphs_mpi_test {
namespace {

/// Graphs of the host, which insist on the rules of a GPU's: what is recorded does not run, and all of it runs in the
/// order in which it was recorded.
class HostGraphs final : public device::Graphs {
 public:
  void make_room() override { ++rooms; }
  int record(const std::function<void()>& work) override {
    EXPECT_EQ(rooms, 1) << "there is room before the first is recorded";
    works.push_back(work);
    return static_cast<int>(works.size()) - 1;
  }
  void launch(int graph) override {
    EXPECT_EQ(graph, launches++ % static_cast<int>(works.size()));
    works.at(static_cast<std::size_t>(graph))();
  }
  Bytes memory() const override { return Bytes{4096}; }

  int rooms = 0;
  int launches = 0;
  std::vector<std::function<void()>> works;
};

constexpr int steps = 5;

/// Losses and norms of steps on other tokens each; lanes run ahead where they may.
std::vector<double> curve(test::Steps& run) {
  std::vector<double> values;
  for (int step = 0; step < steps; ++step) {
    run.take_tokens(step);
    const StepResult result = run.run(step + 1 == steps || run.executor().must_rest());
    values.insert(values.end(), {result.loss, result.grad_norm});
  }
  return values;
}

struct Case {
  std::string name;
  schedule::Policy policy;
  bool lane_threads = true;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  return {
      {.name = "Immediate", .policy = {}},
      {.name = "OneThread", .policy = {}, .lane_threads = false},
      {.name = "Kept",
       .policy = {.sync = config::SyncPolicy::deferred, .reshard = {.after_forward = false, .after_backward = false}}},
      {.name = "Recomputed",
       .policy = {.sync = config::SyncPolicy::deferred, .recompute = {.mode = config::Recompute::block}}}};
}

class StepsAsGraphs : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] test::Setup setup() const {
    test::Setup setup{.microbatches = 3, .policy = GetParam().policy};
    setup.options.lane_threads = GetParam().lane_threads;
    setup.options.poison = true;
    return setup;
  }
  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_P(StepsAsGraphs, ComputeTheSame) {
  test::Steps usual(world_, setup());
  const std::vector<double> expected = curve(usual);
  const auto graphs = std::make_shared<HostGraphs>();
  test::Setup with = setup();
  with.options.graphs = graphs;
  test::Steps run(world_, with);
  EXPECT_EQ(curve(run), expected);
  EXPECT_GT(graphs->works.size(), 3U) << "at least one a microbatch";
  EXPECT_EQ(graphs->launches, (steps - 1) * static_cast<int>(graphs->works.size())) << "all steps but the first";
}

TEST_P(StepsAsGraphs, AreReportedOpByOpAndTimedAsOne) {
  const auto graphs = std::make_shared<HostGraphs>();
  std::mutex mutex;
  std::map<std::int64_t, std::vector<int>> told;  // ops of the compute lane by step
  test::Setup with = setup();
  with.options.graphs = graphs;
  with.options.record_timeline = true;
  const schedule::Schedule* schedule = nullptr;
  with.options.on_op = [&](int op, std::int64_t step) {
    if (schedule::lane_of(schedule->ops[static_cast<std::size_t>(op)]) != schedule::Lane::compute) return;
    const std::scoped_lock lock(mutex);
    told[step].push_back(op);
  };
  test::Steps run(world_, with);
  schedule = &run.executor().schedule();
  (void)curve(run);
  for (int step = 1; step < steps; ++step) {
    std::vector<int> sorted = told[step];
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted, told[0]) << "step " << step;
  }
  std::size_t several = 0;
  for (const timeline::Span& span : run.executor().timeline().take()) {
    EXPECT_LE(span.op, span.last);
    EXPECT_TRUE(span.step > 0 || span.op == span.last) << "the first step is launched op by op";
    several += span.op < span.last;
  }
  const std::vector<std::vector<int>> all =
      segments(run.executor().schedule(), schedule::needs(run.executor().schedule(), run.model()));
  EXPECT_EQ(several, (steps - 1) * static_cast<std::size_t>(std::count_if(all.begin(), all.end(),
                                                                          [](const auto& s) { return s.size() > 1; })));
}

INSTANTIATE_TEST_SUITE_P(, StepsAsGraphs, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST(GraphsOfSteps, RefuseAnotherFactorOfTheLoss) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  test::Setup with;
  with.options.graphs = std::make_shared<HostGraphs>();
  with.options.on_exception = [] {};
  test::Steps run(world, with);
  (void)run.run(true);
  run.scale_loss(0.5);
  EXPECT_THROW((void)run.run(true), BugError);
}

}  // namespace
}  // namespace trireme::executor::graphs_mpi_test
