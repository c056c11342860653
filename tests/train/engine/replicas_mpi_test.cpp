// SPDX-License-Identifier: Apache-2.0
//
// Fault 26: one replica's memory changes silently. And none is accused while its host lane is still at work.
// ranks: 2 3 4
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "train/engine/replicas.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CheckReplicas : public testing::Test {
 protected:
  /// With replicas of one or two ranks.
  [[nodiscard]] config::RunConfig run(int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.mesh.replicate = world_.size() == 3 ? 3 : 2;
    config.mesh.shard = world_.size() / config.mesh.replicate;
    config.batch.micro = config.batch.global / world_.size();
    return config;
  }

  /// Message of the check for the job's current state; "" if there is none.
  static std::string message(Job& job) {
    try {
      check_replicas(job);
    } catch (const NumericsError& error) {
      return error.what();
    }
    return "";
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(CheckReplicas, IsSilentUntilOneBitOfOneRankFlipsAndNamesTheRanksEverywhere) {
  int checks = 0;
  (void)test::train_job(run(3), world_, {}, [&](Job& job, int step) {
    EXPECT_EQ(message(job), "") << "after step " << step;
    if (step < 2) return;
    const int odd = world_.size() - 1;
    if (world_.rank() == odd)
      *static_cast<unsigned char*>(job.store().state(ParamBlock{1}, 1).mutable_data_ptr()) ^= 1U;
    const std::string said = message(job);
    const auto dp_rank = [](int rank) { return HasSubstr("dp rank " + std::to_string(rank) + " (rank"); };
    if (job.mesh().replicate == 3)
      EXPECT_THAT(said, AllOf(dp_rank(odd), Not(dp_rank(0)), HasSubstr("other replicas agree")));
    else
      EXPECT_THAT(said, AllOf(dp_rank(odd), dp_rank(odd - job.mesh().shard), HasSubstr("do not show which")));
    ++checks;
  });
  EXPECT_EQ(checks, 1);
}

TEST_F(CheckReplicas, IsReachedByItsFailpoint) {
  fault::set_rank(world_.rank());
  std::string said;
  (void)test::train_job(run(1), world_, {}, [&](Job& job, int) {
    fault::arm("replica.flip:nan:1");
    said = message(job);
    fault::arm("");
  });
  fault::set_rank(-1);
  EXPECT_THAT(said, HasSubstr("dp rank 1 (rank"));
}

// The updates of an offloaded optimizer are still at work when a step returns.
TEST_F(CheckReplicas, WaitsForTheHostLane) {
  for (const auto offload : {config::Offload::optimizer, config::Offload::parameters}) {
    config::RunConfig config = run(10);
    config.model.hidden_size = 48;
    config.memory.offload = offload;
    config.memory.offload_fraction = offload == config::Offload::optimizer ? 1.0 : 0.5;
    (void)test::train_job(config, world_, {.lane_threads = true},
                          [&](Job& job, int step) { ASSERT_EQ(message(job), "") << "after step " << step; });
  }
}

}  // namespace
}  // namespace trireme::train

// Fault, numerics: a bit of one replica flips -> exit code 6; three or more replicas identify the rank
