// SPDX-License-Identifier: Apache-2.0
//
// Microbatches in flight share nothing: a step whose forwards are shuffled gives the losses, norms and parameters of
// one that takes microbatch after microbatch.
//
// ranks: 1 2
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "../schedule/shuffle.hpp"
#include "steps.hpp"

namespace trireme::executor {
namespace {

constexpr int steps = 3, microbatches = 3;

class Microbatches : public testing::Test {
 protected:
  [[nodiscard]] std::vector<double> curve(std::optional<bool> sequence_parallel, config::Recompute recompute,
                                          std::optional<unsigned> seed, bool lane_threads) const {
    test::Setup setup;
    setup.layers = 2;
    setup.microbatches = microbatches;
    setup.policy = {.sync = config::SyncPolicy::deferred, .recompute = {.mode = recompute}};
    setup.sequence_parallel = sequence_parallel;
    setup.options = {.lane_threads = lane_threads, .poison = true};
    if (seed)
      setup.reorder = [&](const schedule::Schedule& order) {
        return schedule::testing::shuffle_forwards(order, *seed);
      };
    test::Steps job(world_, std::move(setup));
    return job.curve(steps);
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
};

TEST_F(Microbatches, WhoseForwardsAreShuffledGiveTheSameSteps) {
  for (const std::optional<bool> sequence_parallel : {std::optional<bool>{}, std::optional(true), std::optional(false)})
    for (const auto recompute : {config::Recompute::selective, config::Recompute::block}) {
      const std::vector<double> expected = curve(sequence_parallel, recompute, std::nullopt, false);
      for (unsigned seed = 1; seed <= 3; ++seed) {
        const std::vector<double> shuffled = curve(sequence_parallel, recompute, seed, seed == 1);
        for (std::size_t i = 0; i < expected.size(); ++i)  // losses are summed in the order of the heads' forwards
          EXPECT_DOUBLE_EQ(shuffled[i], expected[i]) << "seed " << seed << ", value " << i;
      }
    }
}

}  // namespace
}  // namespace trireme::executor
