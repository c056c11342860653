// SPDX-License-Identifier: Apache-2.0
//
// Traffic and memory of tensor parallelism: counted, predicted, and by formula.
//
// ranks: 2 4
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "support/training/as_planned.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::train::tensor_costs_mpi_test {
namespace {

using device::Category;

constexpr int accumulation = 3;

class TensorCosts : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  /// All ranks on the tensor axis; kv_heads reach so far.
  [[nodiscard]] config::RunConfig run(bool sequence_parallel, DType compute = DType::fp32) const {
    config::RunConfig config = test::odd_run(files_, 2);
    config.model.heads = 8;
    config.model.kv_heads = 4;
    config.model.head_dim = 12;
    config.mesh = {.replicate = 1, .shard = 1, .tensor = world_.size(), .sequence_parallel = sequence_parallel};
    config.batch.micro = config.batch.global / accumulation;
    config.precision.compute = compute;
    return config;
  }

  struct Costs {
    comm::TrafficTable traffic;
    planner::Traffic predicted_traffic;
    planner::Memory predicted;
    Bytes activations;
    device::ByCategory host;
  };
  [[nodiscard]] Costs costs(const config::RunConfig& config, const mpi::Communicator& world) const {
    const device::MemoryUse before = device::memory_use();
    device::reset_peaks();
    Costs found;
    (void)test::train_job(config, world, {.lane_threads = true}, [&](Job& job, int) {
      found.traffic = job.step_traffic();
      const planner::ReplayOptions replay_options = test::plan_options(config, job);
      found.predicted_traffic = planner::replay_traffic(job.schedule(), job.model(), job.layout(), replay_options);
      found.predicted = planner::replay_memory(job.schedule(), job.model(), job.layout(), replay_options);
    });
    const device::MemoryUse use = device::memory_use();
    found.activations = use[device::Space::device].peak[Category::activations] -
                        before[device::Space::device].current[Category::activations];
    for (const Category category : device::all_categories())
      found.host[category] = use[device::Space::host].peak[category] - before[device::Space::host].current[category];
    return found;
  }

  /// Bytes that an all-gather or a reduce-scatter of a microbatch's residual stream sends from one rank.
  [[nodiscard]] std::int64_t stream(const config::RunConfig& config) const {
    const std::int64_t all = config.batch.micro * config.data.seq_len * config.model.hidden_size;
    return all / world_.size() * (world_.size() - 1) * size_of(config.precision.compute);
  }
  /// Gradients of the norms' weights: all of this one shard, an all-reduce a block that has norms.
  [[nodiscard]] std::int64_t copies(std::int64_t norms) const {
    const std::int64_t n = world_.size();
    return 2 * ((norms * 72 + n - 1) / n) * 4 * (n - 1);
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

void expect_as_predicted(const comm::TrafficTable& counted, const planner::Traffic& predicted) {
  test::expect_traffic(counted, predicted);
  EXPECT_EQ(counted.find("tensor")->second.size(), predicted.at("tensor").size());
}

/// Forward 2 all-gathers and 2 reduce-scatters a layer, backward 2 and 2 and 2 gathers again, each (t-1)/t of the
/// residual stream; apart from them one of each for the embedding, one of each for the head, and 12 bytes a token of
/// what each rank knows of its part of the vocabulary.
TEST_F(TensorCosts, SequenceParallelTrafficEqualsTheFormula) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    const config::RunConfig config = run(true, compute);
    const Costs found = costs(config, world_);
    const std::int64_t layers = config.model.layers, tokens = config.batch.micro * config.data.seq_len;
    const comm::Traffic gathered = found.traffic.at("tensor").at("all_gather");
    const comm::Traffic scattered = found.traffic.at("tensor").at("reduce_scatter");
    EXPECT_EQ(gathered.calls, accumulation * (6 * layers + 3));
    EXPECT_EQ(gathered.bytes.value,
              accumulation * ((6 * layers + 2) * stream(config) + 12 * tokens * (world_.size() - 1)));
    EXPECT_EQ(scattered.calls, accumulation * (4 * layers + 2));
    EXPECT_EQ(scattered.bytes.value, accumulation * (4 * layers + 2) * stream(config));
    EXPECT_EQ(found.traffic.at("tensor").at("all_reduce").calls, layers + 1);
    EXPECT_EQ(found.traffic.at("tensor").at("all_reduce").bytes.value, layers * copies(2) + copies(1));
    expect_as_predicted(found.traffic, found.predicted_traffic);
  }
}

TEST_F(TensorCosts, WithoutSequenceParallelismActivationsAreSummedFourTimesALayer) {
  const config::RunConfig config = run(false);
  const Costs found = costs(config, world_);
  const comm::Traffic summed = found.traffic.at("tensor").at("all_reduce");
  EXPECT_EQ(summed.calls, accumulation * (4 * config.model.layers + 2))
      << "one more for the embedding, one for the head";
  EXPECT_EQ(summed.bytes.value, 2 * summed.calls * stream(config));
  expect_as_predicted(found.traffic, found.predicted_traffic);
}

/// In addition to Llama's traffic, a sum of two fp32 numbers per token and layer in each direction; of its norms, the
/// two after branches are replicated.
TEST_F(TensorCosts, ANormOverAllHeadsSharesTwoNumbersATokenInEachDirection) {
  for (const auto recompute : {config::Recompute::selective, config::Recompute::none, config::Recompute::block}) {
    config::RunConfig config = run(true);
    config.model.architecture = "olmo2";
    config.memory.recompute = recompute;
    const Costs found = costs(config, world_);
    const std::int64_t layers = config.model.layers, tokens = config.batch.micro * config.data.seq_len;
    const std::int64_t sums = accumulation * layers * (recompute == config::Recompute::block ? 3 : 2);
    const std::int64_t n = world_.size(), each = 2 * (2 * tokens / n) * 4 * (n - 1);
    const comm::Traffic reduced = found.traffic.at("tensor").at("all_reduce");
    EXPECT_EQ(reduced.calls, sums + layers + 1);
    EXPECT_EQ(reduced.bytes.value, sums * each + layers * copies(2) + copies(1));
    EXPECT_EQ(found.activations, found.predicted.activations);
    expect_as_predicted(found.traffic, found.predicted_traffic);
  }
}

TEST_F(TensorCosts, SharedKeyAndValueHeadsAreSummedInTheirGroups) {
  config::RunConfig config = run(true);
  config.model.kv_heads = 1;
  const Costs whole = costs(config, world_);
  expect_as_predicted(whole.traffic, whole.predicted_traffic);
  if (world_.size() < 4) return;
  config.model.kv_heads = 2;
  const Costs found = costs(config, world_);
  EXPECT_EQ(found.traffic.at("tensor_group").at("all_reduce").calls, config.model.layers);
  expect_as_predicted(found.traffic, found.predicted_traffic);
}

TEST_F(TensorCosts, ActivationsAreARanksPartOfTheWhole) {
  const mpi::Communicator alone = world_.split(world_.rank(), 0);
  for (const config::Recompute recompute : {config::Recompute::selective, config::Recompute::none}) {
    config::RunConfig config = run(true);
    config.memory.recompute = recompute;
    const Costs part = costs(config, world_);
    EXPECT_EQ(part.activations, part.predicted.activations);
    if (recompute == config::Recompute::none) continue;  // alone it also keeps what is gathered here
    config.mesh = {};
    const Costs whole = costs(config, alone);
    EXPECT_EQ(whole.activations, whole.predicted.activations);
    EXPECT_NEAR(
        static_cast<double>(part.activations.value) * world_.size() / static_cast<double>(whole.activations.value), 1.0,
        0.05);
  }
}

TEST_F(TensorCosts, HostMemoryIsAsPlanned) {
  for (const bool sequence_parallel : {true, false})
    for (const auto recompute : {config::Recompute::selective, config::Recompute::block})
      for (const auto offload : {config::Offload::none, config::Offload::optimizer, config::Offload::parameters}) {
        config::RunConfig config = run(sequence_parallel, DType::bf16);
        config.memory = {
            .recompute = recompute, .activation_offload = true, .activation_offload_min_bytes = {}, .offload = offload};
        const Costs found = costs(config, world_);
        EXPECT_EQ(found.activations, found.predicted.activations);
        EXPECT_EQ(found.host[Category::activations], found.predicted.host.activations);
        EXPECT_EQ(found.host[Category::optimizer], found.predicted.host.optimizer);
        EXPECT_EQ(found.host[Category::gradients_sharded], found.predicted.host.gradients_sharded);
        EXPECT_EQ(found.host[Category::parameters_sharded], found.predicted.host.parameters_sharded);
        expect_as_predicted(found.traffic, found.predicted_traffic);
      }
}

}  // namespace
}  // namespace trireme::train::tensor_costs_mpi_test
