// SPDX-License-Identifier: Apache-2.0
//
// Twenty random configurations: predicted memory, by category, on the device and on the host, and bytes on every link,
// compared with the counters of a job.
//
// ranks: 4
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/jobs.hpp"
#include "support/training/as_planned.hpp"
#include "trireme/config/load.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/planner/replay.hpp"

namespace trireme::train::planned_mpi_test {
namespace {

using device::Category;

constexpr int configurations = 20;

class Planned : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  template <class T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[random_() % choices.size()];
  }

  config::RunConfig drawn() {
    config::RunConfig config = test::odd_run(files_, 2);
    const int tensor = one_of({1, 1, 2, 4});
    config.mesh.tensor = tensor;
    config.mesh.sequence_parallel = tensor > 1 && one_of({false, true});
    config.mesh.replicate = one_of({1, 4 / tensor, tensor == 4 ? 1 : 2});
    if (const int others = 4 / tensor; others > 1) {
      const int context = axes_() % 2 == 0 ? 1 : axes_() % 3 == 0 ? others : 2;
      config.mesh.context = context;
      config.mesh.replicate = std::min<std::int64_t>(config.mesh.replicate, others / context);
    }
    config.model.layers = one_of({1, 3, 4});
    config.model.heads = 8;
    config.model.kv_heads = one_of({2, 4, 8});
    config.model.head_dim = one_of({6, 12});
    if (axes_() % 2 == 0 && config.model.kv_heads % (tensor * config.mesh.context) == 0)
      config.context.method = config::ContextMethod::heads;
    config.model.tie_embeddings = one_of({false, true});
    if (tensor == 1 && config.mesh.context == 1 && one_of({false, true})) {
      config.model.architecture = "qwen3_moe";
      config.model.experts = 5;
      config.model.experts_per_token = one_of({1, 3});
      config.model.expert_size = one_of({16, 24});
      config.model.dense_layers = one_of({0, 1});
    } else if (axes_() % 3 == 0) {
      config.model.architecture = "olmo2";
    }
    config.sync.policy = one_of({config::SyncPolicy::immediate, config::SyncPolicy::deferred});
    config.sync.reshard_after_forward = one_of({0, 1});
    config.sync.reshard_after_backward = one_of({false, true});
    config.memory.recompute = one_of({config::Recompute::none, config::Recompute::selective, config::Recompute::block});
    config.memory.recompute_every = one_of({1, 2});
    config.memory.activation_offload = one_of({false, true});
    config.memory.activation_offload_min_bytes = Bytes{2000};
    config.memory.offload = one_of({config::Offload::none, config::Offload::optimizer, config::Offload::parameters});
    config.memory.offload_fraction = one_of({1.0, 0.5});
    config.precision.compute = one_of({DType::fp32, DType::bf16});
    config.precision.reduce = one_of({config::Reduce::fp32, config::Reduce::bf16_wire});
    config.precision.moments = moments_() % 2 == 0 ? DType::fp32 : DType::bf16;
    config.data.seq_len = 8;
    config.batch.micro = one_of({1, 2});
    config.batch.global = config.batch.micro * (world_.size() / tensor / config.mesh.context) * one_of({1, 2, 3});
    return config;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  std::mt19937 random_{20}, axes_{1}, moments_{2};
};

void expect_near(Bytes found, Bytes planned, const std::string& what) {
  EXPECT_NEAR(static_cast<double>(found.value), static_cast<double>(planned.value),
              0.01 * static_cast<double>(planned.value))
      << what;
}

TEST_F(Planned, MemoryIsWithinOnePercentAndBytesAreExact) {
  int divided = 0, by_heads = 0;
  for (int i = 0; i < configurations; ++i) {
    const config::RunConfig config = drawn();
    divided += config.mesh.context > 1 ? 1 : 0;
    by_heads += config.mesh.context > 1 && config.context.method == config::ContextMethod::heads ? 1 : 0;
    const std::string what = "\nconfiguration " + std::to_string(i) + "\n" + config::print_run_file(config);
    const device::MemoryUse before = device::memory_use();
    device::reset_peaks();
    planner::Memory planned;
    (void)test::train_job(config, world_, {.lane_threads = true}, [&](Job& job, int step) {
      const planner::ReplayOptions replay_options = test::plan_options(config, job);
      planned = planner::replay_memory(job.schedule(), job.model(), job.layout(), replay_options);
      if (step == 0) return;  // at which data are already on the device
      SCOPED_TRACE(what);
      test::expect_traffic(job.step_traffic(),
                           planner::replay_traffic(job.schedule(), job.model(), job.layout(), replay_options));
    });
    const device::MemoryUse use = device::memory_use();
    const auto found = [&](device::Space space, Category category) {
      return use[space].peak[category] - before[space].current[category];
    };
    using device::Space;
    expect_near(found(Space::device, Category::parameters_sharded), planned.parameters_sharded, "sharded" + what);
    expect_near(found(Space::device, Category::parameters_unsharded), planned.parameters_unsharded, "unsharded" + what);
    expect_near(found(Space::device, Category::gradients_sharded), planned.gradients_sharded, "gradients" + what);
    expect_near(found(Space::device, Category::gradients_unsharded), planned.gradients_unsharded, "full grads" + what);
    expect_near(found(Space::device, Category::optimizer), planned.optimizer, "optimizer" + what);
    EXPECT_EQ(found(Space::device, Category::activations), planned.activations) << what;
    expect_near(found(Space::host, Category::parameters_sharded), planned.host.parameters_sharded, "host" + what);
    expect_near(found(Space::host, Category::gradients_sharded), planned.host.gradients_sharded, "host grads" + what);
    expect_near(found(Space::host, Category::optimizer), planned.host.optimizer, "host optimizer" + what);
    expect_near(found(Space::host, Category::activations), planned.host.activations, "host activations" + what);
  }
  EXPECT_GT(divided, configurations / 4) << "sequences are divided by too few";
  EXPECT_GT(by_heads, 1) << "heads are exchanged by too few";
}

}  // namespace
}  // namespace trireme::train::planned_mpi_test
