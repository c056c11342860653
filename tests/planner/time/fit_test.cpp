// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/time/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runs.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner::fit_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t tb = 1'000'000'000'000;

Machine node_of(double ranks, Bytes memory = {2 * tb}) {
  Machine machine = load_machine("h100");
  machine.gpus_per_node = ranks;
  machine.node_memory = memory;
  return machine;
}

Memory held(std::int64_t host, std::int64_t copies = 0) {
  Memory memory;
  memory.on_gpu = true;
  memory.host.optimizer = {host};
  memory.host.other = {copies};
  return memory;
}

config::Resolved mesh_of(int pipeline, int shard) {
  config::RunConfig config = testing::small_run();
  config.model.layers = 8;
  config.batch.global = shard * pipeline;
  config.mesh.pipeline = pipeline;
  return config::resolve(config, pipeline * shard);
}

TEST(HostMemoryOfNode, AddsUpTheRanksThatANodeHas) {
  EXPECT_EQ(host_memory_of_node(held(100, 20), mesh_of(1, 64), node_of(8)).bytes, Bytes{8 * 120});
  EXPECT_EQ(host_memory_of_node(held(100, 20), mesh_of(1, 64), node_of(8)).copies, Bytes{8 * 20});
  EXPECT_EQ(host_memory_of_node(held(100), mesh_of(1, 4), node_of(8)).bytes, Bytes{400}) << "fewer than a node has";
  EXPECT_EQ(host_memory_of_node(held(100), mesh_of(1, 4), node_of(8)).ranks, 4);
}

TEST(HostMemoryOfNode, IsThatOfCpuRanksBuffersToo) {
  Memory memory = held(100);
  memory.optimizer = {1000};
  EXPECT_EQ(host_memory_of_node(memory, mesh_of(1, 8), node_of(8)).bytes, Bytes{8 * 100});
  memory.on_gpu = false;
  EXPECT_EQ(host_memory_of_node(memory, mesh_of(1, 8), node_of(8)).bytes, Bytes{8 * 1100});
}

/// The largest memory of a node, computed separately for each, rank after rank.
Bytes most_of_all_nodes(const std::vector<Memory::InHost>& by_pipeline_rank, int ranks, int node) {
  const int stride = ranks / static_cast<int>(by_pipeline_rank.size());
  Bytes most;
  for (int first = 0; first < ranks; first += node) {
    Bytes sum;
    for (int rank = first; rank < std::min(first + node, ranks); ++rank)
      sum += by_pipeline_rank[static_cast<std::size_t>(rank / stride)].bytes;
    most = std::max(most, sum);
  }
  return most;
}

TEST(HostMemoryOfNode, TakesTheNodeWhosePipelineRanksHoldMost) {
  for (const int stages : {2, 4, 8})
    for (const int stride : {1, 2, 3, 4, 12})
      for (const int node : {1, 2, 3, 4, 8, 64}) {
        Memory memory = held(1);
        for (int stage = 0; stage < stages; ++stage)
          memory.by_pipeline_rank.push_back({.bytes = {(stage * 37) % 11 + 1}, .copies = {}});
        EXPECT_EQ(host_memory_of_node(memory, mesh_of(stages, stride), node_of(node)).bytes,
                  most_of_all_nodes(memory.by_pipeline_rank, stages * stride, node))
            << stages << " x " << stride << ", " << node << " a node";
      }
}

TEST(FitOf, SeparatesDeviceAndHost) {
  const config::RunConfig config = testing::small_run();
  const auto fit = [&](std::int64_t device, std::int64_t host, Bytes node = {2 * tb}) {
    Memory memory = held(host);
    memory.optimizer = {device};
    return fit_of(config, memory, mesh_of(1, 64), node_of(8, node));
  };
  EXPECT_TRUE(fit(72'000'000'000, tb / 8 * 18 / 10).both()) << "90% of either";
  EXPECT_FALSE(fit(72'000'000'001, 0).device);
  EXPECT_TRUE(fit(0, tb / 8 * 18 / 10 + 1).device);
  EXPECT_FALSE(fit(0, tb / 8 * 18 / 10 + 1).host);
  EXPECT_TRUE(fit(0, 100 * tb, Bytes{}).host) << "unknown is not checked";
}

TEST(HostMemoryText, IsThereWhereNothingIsOffloadedToo) {
  const config::RunConfig config = testing::small_run();
  Machine machine = load_machine("h100");
  Prediction p = predict(config, 4, machine);
  EXPECT_THAT(to_text(p, machine), HasSubstr("host memory of a node: 0 B of 1.82 TiB (4 ranks)"));
  config::RunConfig saving = config;
  saving.checkpoint.every = 5;
  saving.train.steps = 100;
  p = predict(saving, 4, machine);
  EXPECT_THAT(to_text(p, machine), HasSubstr(" are copies for checkpoint.async)"));
  machine.node_memory = {};
  EXPECT_THAT(to_text(p, machine), HasSubstr("of an unknown amount"));
  EXPECT_THAT(to_text(p, machine), HasSubstr("the machine file has no host.node_memory"));
}

TEST(Verdict, IsOneLineWithTheFiguresThatCount) {
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  Machine machine = load_machine("h100");
  std::string text = verdict_text(config, predict(config, 8, machine), machine);
  EXPECT_THAT(text, ::testing::MatchesRegex("fits: .* of 8.03B parameters on 8 ranks of h100 \\(1 node; 1 x 8 x 1\\), "
                                            "[0-9.]+k tokens/s, MFU [0-9.]+%, [0-9.]+ GiB of 67.1 GiB a rank, host "
                                            "memory 0 B of 1.64 TiB a node\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("uncalibrated")));
  config.mesh.tensor = 2;
  const Prediction divided = predict(config, 8, machine);
  EXPECT_THAT(verdict_text(config, divided, machine), HasSubstr("k tokens/s (uncalibrated), MFU"));
  EXPECT_THAT(to_text(divided, machine), HasSubstr("uncalibrated: no run with tensor parallelism on these GPUs"));
  EXPECT_THAT(to_text(divided, load_machine("h200")), HasSubstr("uncalibrated")) << "fitted to runs of one GPU";
  EXPECT_THAT(to_text(divided, load_machine("h100-efa")), ::testing::Not(HasSubstr("uncalibrated")));
  config.mesh.tensor = 1;
  config.batch.micro = 8;
  EXPECT_THAT(verdict_text(config, predict(config, 8, machine), machine), HasSubstr("GiB of 67.1 GiB (TOO LARGE) a"));
  config.batch.micro = 1;
  config.memory.offload = config::Offload::optimizer;
  config.checkpoint.every = 5;
  config.train.steps = 100;
  machine.node_memory = {200'000'000'000};
  text = verdict_text(config, predict(config, 8, machine), machine);
  EXPECT_THAT(text, ::testing::StartsWith("DOES NOT FIT: "));
  EXPECT_THAT(text, HasSubstr("checkpoint.async = false saves the copies"));
}

/// Copies and updates of eight ranks share what one has for itself.
TEST(Predict, RanksOfANodeShareItsHostMemoryBandwidth) {
  config::RunConfig config = testing::run_of(testing::llama_8b(), 64, 1);
  config.memory.offload = config::Offload::optimizer;
  Machine machine = load_machine("h100");
  const auto seconds = [&](double bandwidth) {
    machine.node_bandwidth = bandwidth;
    return predict(config, 8, machine, {.percentiles = false}).expected.seconds;
  };
  const double alone = seconds(0);
  EXPECT_EQ(seconds(1e15), alone);
  EXPECT_GT(seconds(200e9), 1.02 * alone);
  EXPECT_GT(seconds(50e9), 2 * seconds(200e9)) << "the updates of 8B parameters take over";
  config.memory.offload = config::Offload::none;
  EXPECT_EQ(seconds(50e9), seconds(0)) << "nothing is copied";
}

TEST(Predict, RanksBeyondTheCoresOfANodeShareThem) {
  config::RunConfig config = testing::small_run();
  config.device.type = config::DeviceType::cpu;
  config.model.hidden_size = 512;
  Machine machine = load_machine("local");
  const auto rate = [&](int ranks) { return predict(config, ranks, machine).tokens_per_second(); };
  const double two = rate(2), eight = rate(8);
  EXPECT_GT(eight, 2 * two) << "a core for each";
  machine.cores = 2;
  EXPECT_LE(rate(8), 1.05 * two);
  EXPECT_LT(rate(4), 1.05 * two);
  EXPECT_GT(rate(2), 0.6 * two) << "lanes have no core of their own";
  EXPECT_THAT(to_text(predict(config, 8, machine), machine),
              HasSubstr("warning: 8 ranks share 2 cores: they compute at"));
  EXPECT_THAT(to_text(predict(config, 8, machine), machine), HasSubstr("a guess until `trireme doctor --measure`"));
  machine = load_machine("h100");
  machine.cores = 2;
  config.device.type = config::DeviceType::cuda;
  EXPECT_EQ(rate(8), [&] {
    machine.cores = 0;
    return rate(8);
  }()) << "GPUs have their own";
}

TEST(Simulate, OpsOfTheHostShareItsMemory) {
  const auto takes = [](double host) {
    config::RunConfig config = testing::small_run();
    config.memory.offload = config::Offload::optimizer;
    const config::Resolved mesh = config::resolve(config, 4);
    const model::Model model = model::build(config.model, tensor_part(config, mesh, 0));
    const auto step = schedule::build_step(model, mesh.accumulation, schedule::policy_of(config, mesh));
    std::vector<Cost> costs(step.ops.size());
    double alone = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      const schedule::Lane lane = schedule::lane_of(step.ops[i]);
      if (lane != schedule::Lane::device_to_host && lane != schedule::Lane::host_to_device &&
          lane != schedule::Lane::host)
        continue;
      costs[i] = {.seconds = 1, .host = host};
      alone += 1;
    }
    return std::pair(simulate(step, schedule::needs(step, model), costs, 0).seconds, alone);
  };
  const auto [free, alone] = takes(0.2);
  EXPECT_LT(free, 0.9 * alone) << "copies of both directions and updates at once";
  EXPECT_NEAR(takes(1).first, alone, 1e-9) << "as long as one after the other";
  EXPECT_GT(takes(0.6).first, free);
}

}  // namespace
}  // namespace trireme::planner::fit_test

// Fault, plans: a plan beyond the host memory of a node (offload, `checkpoint.async`) -> `DOES NOT FIT`; excluded by
//   `plan --search` and `init`
