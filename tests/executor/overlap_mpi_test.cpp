// SPDX-License-Identifier: Apache-2.0
//
// Overlap of lanes, without timing: a lane that must not block is tested by making another one wait for its
// progress.
//
// ranks: 2
#include <gtest/gtest.h>

#include "meetings.hpp"

namespace trireme::executor {
namespace {

using test::expect_meetings;
using test::Rendezvous;
using test::Spans;
using test::spans_of;
using test::Steps;

/// Reductions wait for the backward of the next block to begin.
std::vector<Rendezvous> reductions_under_backwards(const Steps& steps) {
  std::vector<Rendezvous> meetings;
  const std::vector<std::string> blocks{"head", "b3", "b2", "b1", "b0", "embedding"};
  for (std::int64_t step : {0, 1})
    for (std::size_t i = 0; i + 1 < blocks.size(); ++i)
      meetings.push_back(
          {steps.find("reduce_scatter " + blocks[i]), step, steps.find("backward " + blocks[i + 1]), step,
           "the reduction of " + blocks[i] + " keeps the backward of " + blocks[i + 1] + " from starting"});
  return meetings;
}

TEST(Overlap, ABlocksReductionRunsUnderTheNextBlocksBackward) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  expect_meetings(world, 2, {}, reductions_under_backwards);
}

TEST(Overlap, ABlocksGatherRunsUnderTheForwardBeforeIt) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  expect_meetings(world, 2, {}, [](const Steps& steps) {
    std::vector<Rendezvous> meetings;
    const std::vector<std::string> blocks{"embedding", "b0", "b1", "b2", "b3", "head"};
    for (std::int64_t step : {0, 1})
      for (std::size_t i = 0; i + 1 < blocks.size(); ++i) {
        int unshard = 0;  // the first one: for forward
        while (!schedule::print(steps.op(unshard), steps.model()).starts_with("unshard " + blocks[i + 1])) ++unshard;
        meetings.push_back(
            {unshard, step, steps.find("forward " + blocks[i]), step,
             "the gather of " + blocks[i + 1] + " keeps the forward of " + blocks[i] + " from starting"});
      }
    return meetings;
  });
}

TEST(Overlap, TheNextStepBeginsBeforeTheLastUpdateOfThisOne) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  expect_meetings(world, 3, {}, [](const Steps& steps) {
    const int embedding = 0;
    EXPECT_TRUE(schedule::print(steps.op(embedding), steps.model()).starts_with("unshard embedding"));
    std::vector<Rendezvous> meetings;
    for (std::int64_t step : {0, 1})
      meetings.push_back({steps.find("update b1"), step, embedding, step + 1,
                          "gathers of the next step wait for all updates of this one"});
    return meetings;
  });
}

test::Setup over_a_slow_link() {
  test::Setup setup;
  setup.options.record_timeline = true;
  setup.reduce_pace = comm::Pace{.bytes_per_second = 1e9, .latency_seconds = 0.1};
  return setup;
}

// The reduction begins when the backward does, and its link keeps it for longer than a busy machine keeps the
// backward's thread from the clock.
TEST(Overlap, TheTimelineOverASlowLinkShowsReductionsUnderBackwards) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  expect_meetings(world, 2, over_a_slow_link(), reductions_under_backwards);
}

TEST(Overlap, TheTimelineKeepsEveryNeedAcrossSteps) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  test::Setup setup = over_a_slow_link();
  setup.microbatches = 2;
  Steps steps(world, std::move(setup));
  const Spans spans = spans_of(steps, 3);
  for (const schedule::Need& need : schedule::needs(steps.executor().schedule(), steps.model()))
    for (std::int64_t step = need.distance; step < 3; ++step)
      EXPECT_LE(spans.at({step - need.distance, need.from}).end, spans.at({step, need.to}).begin)
          << schedule::print(steps.op(need.from), steps.model()) << " -> "
          << schedule::print(steps.op(need.to), steps.model());
}

}  // namespace
}  // namespace trireme::executor
