// SPDX-License-Identifier: Apache-2.0
//
// Fault 26: one replica's memory changes silently.
// ranks: 2 4
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "trireme/base/error.hpp"
#include "trireme/train/replicas.hpp"

namespace trireme::train {
namespace {

TEST(CheckReplicas, IsSilentUntilOneBitOfOneRankFlipsAndNamesThatRankEverywhere) {
  const comm::Communicator world = comm::Communicator::from(MPI_COMM_WORLD);
  const test::TokenFiles files(world, 257);
  config::RunConfig config = test::odd_run(files, 3);
  config.mesh = {.replicate = 2, .shard = world.size() / 2};
  config.batch.micro = config.batch.global / world.size();
  int checks = 0;
  (void)test::train_job(config, world, {}, [&](Job& job, int step) {
    EXPECT_NO_THROW(check_replicas(job)) << "after step " << step;
    if (step < 2) return;
    const int odd = world.size() - 1;
    if (world.rank() == odd)
      *static_cast<unsigned char*>(job.store().second_moment(ParamBlock{1}).mutable_data_ptr()) ^= 1U;
    try {
      check_replicas(job);
      ADD_FAILURE() << "a flipped bit went unseen";
    } catch (const NumericsError& error) {
      // With two replicas nobody can say which one is right: the first is taken.
      EXPECT_THAT(error.what(), testing::HasSubstr("dp rank " + std::to_string(odd)));
    }
    ++checks;
  });
  EXPECT_EQ(checks, 1);
}

}  // namespace
}  // namespace trireme::train
