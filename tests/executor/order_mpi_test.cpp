// SPDX-License-Identifier: Apache-2.0
//
// ranks: 2
#include <gtest/gtest.h>

#include <mutex>
#include <utility>
#include <vector>

#include "steps.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::executor {
namespace {

bool is_collective(const schedule::Op& op) {
  const schedule::Lane lane = schedule::lane_of(op);
  return lane == schedule::Lane::gather || lane == schedule::Lane::reduce || lane == schedule::Lane::tensor;
}

TEST(OrderedCollectives, BeginInTheSchedulesOrderOverAllLanesAndSteps) {
  const mpi::Communicator world = mpi::Communicator::from(MPI_COMM_WORLD);
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, int>> begun;  // step, op
  test::Setup setup{.microbatches = 2};
  setup.options.ordered_collectives = true;
  const schedule::Schedule* schedule = nullptr;
  setup.options.on_op = [&](int op, std::int64_t step) {
    if (!is_collective(schedule->ops[static_cast<std::size_t>(op)])) return;
    const std::scoped_lock lock(mutex);
    begun.emplace_back(step, op);
  };
  const std::vector<double> usual = test::Steps(world, {.microbatches = 2}).curve(4);
  test::Steps steps(world, setup);
  schedule = &steps.executor().schedule();
  EXPECT_EQ(steps.curve(4), usual);
  EXPECT_GT(begun.size(), 4U * 10);
  EXPECT_TRUE(std::is_sorted(begun.begin(), begun.end()));
}

}  // namespace
}  // namespace trireme::executor
