// SPDX-License-Identifier: Apache-2.0
//
// Bitwise equal results: of repeated runs, and with all settings that change only timing or
// order.
//
// ranks: 1 2 3
#include <gtest/gtest.h>

#include "support/jobs.hpp"
#include "support/tensors.hpp"

namespace trireme::train::repeat_mpi_test {
namespace {

constexpr int steps = 4;

class Repeat : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(config::SyncPolicy policy, DType compute) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.data.ignore_targets = {test::TokenFiles::silent_token};
    config.sync.policy = policy;
    config.precision.compute = compute;
    config.batch = {.global = 24, .micro = 24 / (world_.size() * 4)};
    return config;
  }

  [[nodiscard]] test::Outcome outcome(const config::RunConfig& config,
                                      JobOptions options = {.lane_threads = true}) const {
    return test::train_job(config, world_, options);
  }

  static void expect_same_bits(const test::Outcome& a, const test::Outcome& b, const char* what) {
    EXPECT_EQ(a.curve, b.curve) << what;
    ASSERT_EQ(a.masters.size(), b.masters.size());
    for (std::size_t i = 0; i < a.masters.size(); ++i)
      EXPECT_TRUE(test::same_bits(a.masters[i], b.masters[i])) << what << ", masters of block " << i;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(Repeat, TheSameRunGivesTheSameBits) {
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred})
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const config::RunConfig config = run(policy, compute);
      expect_same_bits(outcome(config), outcome(config), compute == DType::fp32 ? "fp32" : "bf16");
    }
}

TEST_F(Repeat, RecomputeChangesNoBit) {
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred})
    for (const DType compute : {DType::fp32, DType::bf16}) {
      config::RunConfig changed = run(policy, compute);
      changed.memory.recompute = config::Recompute::none;
      const test::Outcome expected = outcome(changed);
      changed.memory.recompute = config::Recompute::selective;
      expect_same_bits(outcome(changed), expected, "selective");
      changed.memory.recompute = config::Recompute::block;
      expect_same_bits(outcome(changed, {.lane_threads = true, .poison = true}), expected, "block");
      changed.memory.recompute_every = 2;
      expect_same_bits(outcome(changed), expected, "every second block");
    }
}

TEST_F(Repeat, WhereThingsLiveChangesNoBit) {
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred})
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const config::RunConfig base = run(policy, compute);
      const test::Outcome expected = outcome(base);
      const auto expect_same = [&](const char* what, config::Memory memory,
                                   JobOptions options = {.lane_threads = true}) {
        config::RunConfig changed = base;
        changed.memory = memory;
        expect_same_bits(outcome(changed, options), expected, what);
      };
      const JobOptions poisoned{.lane_threads = true, .host_threads = 2, .poison = true};
      const JobOptions inline_options{.lane_threads = false};
      expect_same("optimizer", {.offload = config::Offload::optimizer}, poisoned);
      expect_same("optimizer, one thread", {.offload = config::Offload::optimizer}, inline_options);
      expect_same("parameters", {.offload = config::Offload::parameters}, poisoned);
      expect_same("half of them", {.offload = config::Offload::parameters, .offload_fraction = 0.5}, poisoned);
      expect_same("activations", {.activation_offload = true, .activation_offload_min_bytes = {}}, poisoned);
      expect_same("activations, one thread", {.activation_offload = true, .activation_offload_min_bytes = {}},
                  inline_options);
      expect_same("block inputs",
                  {.recompute = config::Recompute::block,
                   .activation_offload = true,
                   .activation_offload_min_bytes = Bytes{1000},
                   .activation_offload_in_flight = 2},
                  poisoned);
    }
}

TEST_F(Repeat, UnderTensorParallelismNeitherRecomputeNorWhereThingsLiveChangesABit) {
  if (world_.size() % 2 != 0) GTEST_SKIP() << "needs pairs of ranks";
  for (const bool sequence_parallel : {true, false})
    for (const DType compute : {DType::fp32, DType::bf16}) {
      config::RunConfig base = run(config::SyncPolicy::immediate, compute);
      base.mesh = {.replicate = 1, .shard = -1, .tensor = 2, .sequence_parallel = sequence_parallel};
      base.batch.micro *= 2;  // as many microbatches of as many tokens a rank
      base.memory.recompute = config::Recompute::none;
      const test::Outcome expected = outcome(base);
      for (const config::Memory& memory :
           {config::Memory{.recompute = config::Recompute::selective},
            {.recompute = config::Recompute::block},
            {.recompute = config::Recompute::block,
            .recompute_every = 2,
            .activation_offload = true,
            .activation_offload_min_bytes = {}},
            {.activation_offload = true, .activation_offload_min_bytes = {}, .offload = config::Offload::optimizer},
            {.offload = config::Offload::parameters, .offload_fraction = 0.5}}) {
        config::RunConfig changed = base;
        changed.memory = memory;
        expect_same_bits(outcome(changed, {.lane_threads = true, .poison = true}), expected, "tensor 2");
      }
    }
}

TEST_F(Repeat, LanesTransportsPrefetchAndReshardingChangeNoBit) {
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
    const config::RunConfig base = run(policy, DType::fp32);
    const test::Outcome expected = outcome(base, {.lane_threads = false, .transport = comm::TransportChoice::mpi});
    const auto expect_same = [&](const char* what, auto change, JobOptions options = {.lane_threads = true}) {
      config::RunConfig changed = base;
      change(changed.sync);
      expect_same_bits(outcome(changed, options), expected, what);
    };
    expect_same("lane threads", [](config::Sync&) {});
    expect_same("poison", [](config::Sync&) {}, {.lane_threads = true, .poison = true});
    expect_same("MPI", [](config::Sync&) {}, {.lane_threads = true, .transport = comm::TransportChoice::mpi});
    expect_same("no prefetch", [](config::Sync& s) { s.prefetch_bytes = Bytes{0}; });
    expect_same("unbounded prefetch", [](config::Sync& s) { s.prefetch_bytes = Bytes{std::int64_t{1} << 40}; });
    expect_same("kept after forward", [](config::Sync& s) { s.reshard_after_forward = 1; });
    expect_same("kept after backward", [](config::Sync& s) { s.reshard_after_backward = false; });
  }
}

TEST_F(Repeat, AllRanksSeeTheSameLossesAndNorms) {
  const test::Curve mine = outcome(run(config::SyncPolicy::immediate, DType::fp32)).curve;
  for (const std::vector<double>& values : {mine.losses, mine.grad_norms}) {
    std::vector<double> of_rank_0 = values;
    MPI_Bcast(of_rank_0.data(), steps, MPI_DOUBLE, 0, world_.handle());
    EXPECT_EQ(values, of_rank_0);
  }
}

}  // namespace
}  // namespace trireme::train::repeat_mpi_test
