// SPDX-License-Identifier: Apache-2.0
//
// Gradient shards have memory from their first reduction to their update, and the planner predicts their peak together
// with activations.
//
// ranks: 1 2 3
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "support/jobs.hpp"
#include "support/training/as_planned.hpp"
#include "trireme/config/load.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train::gradient_memory_mpi_test {
namespace {

using device::Category;

class GradientMemory : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  /// Memory in use during the ops of the second step and later, and planned memory.
  struct Held {
    std::int64_t most = 0;  ///< of activations and gradient shards together
    std::int64_t most_gradients = 0, least_gradients = 0;
    planner::Memory planned;
  };
  [[nodiscard]] Held held(const config::RunConfig& config) const {
    const device::ByCategory before = device::memory_use()[device::Space::device].current;
    Held found;
    std::optional<std::int64_t> until_then;  // gradient shards before the op that has run
    const auto look = [&](int, std::int64_t step) {
      const auto use = device::memory_use()[device::Space::device];
      device::reset_peaks();
      if (step == 0) return;
      const std::int64_t shards =
          (use.current[Category::gradients_sharded] - before[Category::gradients_sharded]).value;
      if (until_then) {
        const std::int64_t activations = (use.peak[Category::activations] - before[Category::activations]).value;
        found.most = std::max(found.most, std::max(*until_then, shards) + activations);
        found.least_gradients = std::min(found.least_gradients, shards);
      } else {
        found.least_gradients = shards;
      }
      found.most_gradients = std::max(found.most_gradients, shards);
      until_then = shards;
    };
    (void)test::train_job(config, world_, {.lane_threads = false, .on_op = look}, [&](Job& job, int) {
      found.planned =
          planner::replay_memory(job.schedule(), job.model(), job.layout(), test::plan_options(config, job));
    });
    return found;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(GradientMemory, IsAllocatedAndFreedAtThePlannedOps) {
  for (const auto offload : {config::Offload::none, config::Offload::optimizer})
    for (const auto sync : {config::SyncPolicy::immediate, config::SyncPolicy::deferred})
      for (const int accumulation : {1, 4}) {
        config::RunConfig config = test::odd_run(files_, 3);
        config.sync.policy = sync;
        config.batch.micro = config.batch.global / (world_.size() * accumulation);
        config.memory = {.offload = offload, .offload_fraction = 0.5};
        const Held found = held(config);
        EXPECT_EQ(found.most, found.planned.at_once.most.value);
        EXPECT_EQ(found.most_gradients, found.planned.gradients_sharded.value);
        const bool some_stay = offload != config::Offload::none;  // on their way to the host
        EXPECT_EQ(found.least_gradients > 0, some_stay);
        if (accumulation > 1) continue;
        EXPECT_LT(found.most, found.planned.activations.value + found.planned.gradients_sharded.value)
            << "they are not highest at the same time";
      }
}

TEST_F(GradientMemory, IsAllocatedAndFreedOnEveryMeshAsPlanned) {
  using Change = void (*)(config::RunConfig&);
  const Change changes[] = {
      [](config::RunConfig& c) { c.mesh.tensor = 2; },
      [](config::RunConfig& c) { c.mesh.context = 2; },
      [](config::RunConfig& c) {
        c.mesh.replicate = 2;
        c.sync.policy = config::SyncPolicy::immediate_all;
      },
      [](config::RunConfig& c) {
        c.mesh.pipeline = 2;
        c.pipeline.schedule = config::PipelineKind::one_f_one_b;
      },
      [](config::RunConfig& c) {
        c.mesh.pipeline = 2;
        c.model.layers = 4;
        c.pipeline.schedule = config::PipelineKind::zbv;
      },
      [](config::RunConfig& c) { c.sync.reshard_after_forward = 0; },
      [](config::RunConfig& c) {
        c.model.architecture = "qwen3_moe";
        c.model.experts = 5;
        c.model.experts_per_token = 2;
        c.model.expert_size = 16;
      },
  };
  if (world_.size() == 3) return;  // which these axes do not divide
  for (std::size_t i = 0; i < std::size(changes); ++i)
    for (const auto recompute : {config::Recompute::none, config::Recompute::block}) {
      config::RunConfig config = test::odd_run(files_, 3);
      config.model.heads = config.model.kv_heads = 4;
      config.model.head_dim = 12;
      config.data.seq_len = 8;
      config.memory.recompute = recompute;
      changes[i](config);
      const std::int64_t others = config.mesh.tensor * config.mesh.context * config.mesh.pipeline;
      if (world_.size() % (others * config.mesh.replicate) != 0) continue;
      config.batch = {.global = 4 * world_.size() / others, .micro = 1};
      const Held found = held(config);
      EXPECT_EQ(found.most, found.planned.at_once.most.value) << config::print_run_file(config);
      EXPECT_EQ(found.most_gradients, found.planned.gradients_sharded.value) << config::print_run_file(config);
      const bool some_stay = config.mesh.replicate > 1;  // on their way to their sums over replicas
      EXPECT_EQ(found.least_gradients > 0, some_stay) << config::print_run_file(config);
    }
}

}  // namespace
}  // namespace trireme::train::gradient_memory_mpi_test
