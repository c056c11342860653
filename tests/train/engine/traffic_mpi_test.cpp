// SPDX-License-Identifier: Apache-2.0
//
// Collectives are counted, and the counts are what the policy promises: a policy that silently did nothing would show
// here.
//
// ranks: 1 2 3 4
#include <gtest/gtest.h>

#include <string>

#include "support/jobs.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::train::traffic_mpi_test {
namespace {

constexpr int accumulation = 4;
constexpr auto immediate = config::SyncPolicy::immediate;
constexpr auto immediate_all = config::SyncPolicy::immediate_all;
constexpr auto deferred = config::SyncPolicy::deferred;

class Traffic : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(config::Sync sync, int replicate = 1) const {
    config::RunConfig config = test::odd_run(files_, 3);
    config.sync = sync;
    config.mesh.replicate = replicate;
    config.batch.micro = config.batch.global / (world_.size() * accumulation);
    return config;
  }

  /// Traffic of each of three steps: the same, although lanes run ahead.
  [[nodiscard]] comm::TrafficTable moved(const config::RunConfig& config) const {
    std::vector<comm::TrafficTable> steps;
    (void)test::train_job(config, world_, {.lane_threads = true},
                          [&](Job& job, int) { steps.push_back(job.step_traffic()); });
    EXPECT_EQ(steps[1], steps[0]);
    EXPECT_EQ(steps[2], steps[0]);
    return steps[0];
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

/// None if nothing was counted: one rank gathers and reduces nothing.
comm::Traffic of(const comm::TrafficTable& table, const std::string& group, const std::string& operation) {
  const auto found = table.find(group);
  if (found == table.end()) return {};
  const auto moved = found->second.find(operation);
  return moved == found->second.end() ? comm::Traffic{} : moved->second;
}

/// The closed formula, independent of any schedule.
struct Formula {
  model::Model model;
  shard::Layout layout;
  config::RunConfig config;
  int ranks;  ///< of the shard axis

  Formula(const config::RunConfig& run, int shard_ranks)
      : model(model::build(run.model)), layout(model, shard_ranks), config(run), ranks(shard_ranks) {}

  [[nodiscard]] int blocks() const { return model.param_blocks(); }
  [[nodiscard]] Bytes shard_bytes(int block, DType type) const {
    return {layout[ParamBlock{block}].shard_elements() * size_of(type)};
  }

  /// One gather for the forward of each microbatch, unless kept after the last one's backward; one more where a block
  /// is given up after forward and its backward reads it: not the head, whose backward follows at once, nor an
  /// embedding, which reads indices. A tied embedding is given up between its own forward and the head's.
  [[nodiscard]] std::int64_t gathers(int block) const {
    const bool layer = block > 0 && block + 1 < blocks();
    const bool given_up = config.sync.reshard_after_forward != 1 && (layer || (block == 0 && model.sizes.tied));
    return 1 + (config.sync.reshard_after_backward ? accumulation - 1 : 0) + (given_up ? accumulation : 0);
  }

  [[nodiscard]] comm::Traffic all_gather() const {
    comm::Traffic sum;
    if (ranks == 1) return sum;
    for (int b = 0; b < blocks(); ++b) {
      sum.calls += gathers(b);
      sum.bytes.value += gathers(b) * (ranks - 1) * shard_bytes(b, config.precision.compute).value;
    }
    return sum;
  }

  [[nodiscard]] comm::Traffic reduce_scatter() const {
    if (ranks == 1 && config.sync.policy == deferred) return {};
    const int each = config.sync.policy == deferred ? 1 : accumulation;
    return {.bytes = {each * (ranks - 1) * layout.shard_elements() * 4}, .calls = each * blocks()};
  }
};

std::vector<config::Sync> syncs() {
  std::vector<config::Sync> all;
  for (const auto policy : {immediate, deferred})
    for (const std::int64_t after_forward : {0, 1})
      for (const bool after_backward : {true, false})
        all.push_back(
            {.policy = policy, .reshard_after_forward = after_forward, .reshard_after_backward = after_backward});
  all.push_back({.prefetch_bytes = Bytes{0}});
  all.push_back({.policy = deferred, .prefetch_bytes = Bytes{std::int64_t{1} << 40}});
  return all;
}

TEST_F(Traffic, EqualsTheFormulaForEveryPolicy) {
  for (const bool tied : {false, true})
    for (const config::Sync& sync : syncs()) {
      config::RunConfig config = run(sync);
      config.model.tie_embeddings = tied;
      const Formula formula(config, world_.size());
      const comm::TrafficTable table = moved(config);
      EXPECT_EQ(of(table, "shard", "all_gather"), formula.all_gather()) << config::print_run_file(config);
      EXPECT_EQ(of(table, "shard", "reduce_scatter"), formula.reduce_scatter()) << config::print_run_file(config);
      EXPECT_EQ(table.contains("shard") ? table.at("shard").size() : 0, world_.size() > 1         ? 2U
                                                                        : sync.policy == deferred ? 0U
                                                                                                  : 1U);
      EXPECT_FALSE(table.contains("replicate"));
    }
}

TEST_F(Traffic, InBf16GathersHalfTheBytesAndReducesTheSame) {
  config::RunConfig config = run({});
  const comm::TrafficTable fp32 = moved(config);
  config.precision.compute = DType::bf16;
  const comm::TrafficTable bf16 = moved(config);
  EXPECT_EQ(2 * of(bf16, "shard", "all_gather").bytes.value, of(fp32, "shard", "all_gather").bytes.value);
  EXPECT_EQ(of(bf16, "shard", "reduce_scatter"), of(fp32, "shard", "reduce_scatter"));
}

TEST_F(Traffic, ReshardedToGroupsGathersForBackwardInsideThem) {
  if (world_.size() != 4) GTEST_SKIP() << "needs two groups of two";
  const Formula kept(run({.reshard_after_forward = 1}), 4);
  const comm::TrafficTable table = moved(run({.reshard_after_forward = 2}));
  std::int64_t layers = 0;
  for (int b = 1; b + 1 < kept.blocks(); ++b) layers += kept.layout[ParamBlock{b}].padded();
  EXPECT_EQ(of(table, "shard", "all_gather"), kept.all_gather()) << "for forward";
  EXPECT_EQ(of(table, "shard_group", "all_gather"),
            (comm::Traffic{.bytes = {accumulation * 4 * layers / 2}, .calls = accumulation * (kept.blocks() - 2)}));
  EXPECT_EQ(of(table, "shard", "reduce_scatter"), kept.reduce_scatter());
}

TEST_F(Traffic, OnABf16WireSendsHalfTheGradient) {
  config::RunConfig config = run({});
  const comm::TrafficTable fp32 = moved(config);
  config.precision.reduce = config::Reduce::bf16_wire;
  const comm::TrafficTable bf16 = moved(config);
  EXPECT_EQ(2 * of(bf16, "shard", "reduce_scatter").bytes.value, of(fp32, "shard", "reduce_scatter").bytes.value);
  EXPECT_EQ(of(bf16, "shard", "all_gather"), of(fp32, "shard", "all_gather"));
}

TEST_F(Traffic, OverReplicasGrowsWithAccumulationOnlyWhenAllIsImmediate) {
  if (world_.size() % 2 != 0) GTEST_SKIP() << "needs two replicas";
  for (const auto policy : {immediate, deferred, immediate_all}) {
    const config::RunConfig config = run({.policy = policy}, 2);
    const int times = policy == immediate_all ? accumulation : 1;
    const Formula formula(config, world_.size() / 2);
    std::int64_t bytes = 0;
    for (int b = 0; b < formula.blocks(); ++b) bytes += 2 * formula.shard_bytes(b, DType::fp32).value / 2;
    const comm::TrafficTable table = moved(config);
    EXPECT_EQ(of(table, "replicate", "all_reduce"),
              (comm::Traffic{.bytes = {times * bytes}, .calls = times * formula.blocks()}));
    EXPECT_EQ(of(table, "shard", "all_gather"), formula.all_gather());
    EXPECT_EQ(of(table, "shard", "reduce_scatter"), formula.reduce_scatter());
  }
}

}  // namespace
}  // namespace trireme::train::traffic_mpi_test
