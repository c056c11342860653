// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a node have their shards in common, so that a gather copies nothing: the same bits, counted traffic and
// charged memory as with copies.
//
// ranks: 1 2 3 4
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "support/jobs.hpp"
#include "support/tensors.hpp"
#include "trireme/config/load.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::train::common_shards_mpi_test {
namespace {

class CommonShards : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::install_allocator(); }

  struct Found {
    test::Outcome outcome;
    std::size_t common = 0, blocks = 0;  ///< blocks that lie in common, and all
    std::int64_t charged = 0;            ///< for shards
    std::int64_t shards = 0;             ///< elements of them
  };
  [[nodiscard]] Found train(const config::RunConfig& config, bool in_common, bool poison = false) const {
    const auto charged = [] {
      return device::memory_use()[device::Space::device].current[device::Category::parameters_sharded].value;
    };
    const std::int64_t before = charged();
    JobOptions options;
    options.transport = in_common ? comm::TransportChoice::shared_memory : comm::TransportChoice::mpi;
    options.small_windows = in_common;
    options.poison = poison;
    Found found;
    found.outcome = test::train_job(config, world_, options, [&](Job& job, int) {
      found.common = found.shards = 0;
      found.charged = charged() - before;
      found.blocks = static_cast<std::size_t>(job.model().param_blocks());
      for (int b = 0; b < job.model().param_blocks(); ++b) {
        found.common += job.store().lies_in_common(ParamBlock{b}) ? 1 : 0;
        found.shards += job.layout()[ParamBlock{b}].shard_elements();
      }
    });
    return found;
  }
  void expect_same(const Found& found, const Found& expected, const config::RunConfig& config) const {
    EXPECT_EQ(found.outcome.curve.losses, expected.outcome.curve.losses) << config::print_run_file(config);
    EXPECT_EQ(found.outcome.curve.grad_norms, expected.outcome.curve.grad_norms);
    for (std::size_t b = 0; b < expected.blocks; ++b)
      EXPECT_TRUE(test::same_bits(found.outcome.masters[b], expected.outcome.masters[b])) << "block " << b;
    EXPECT_EQ(found.outcome.traffic, expected.outcome.traffic);
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(CommonShards, TrainAsCopiesDo) {
  for (const bool bf16 : {false, true})
    for (const bool split : {false, true})
      for (const int replicate : {1, 2}) {
        if (world_.size() % replicate != 0 || (split && !bf16)) continue;
        config::RunConfig config = test::odd_run(files_, 5);
        config.mesh.replicate = replicate;
        config.sync.policy = config::SyncPolicy::immediate;
        if (bf16) config.precision.compute = DType::bf16;
        if (split) config.precision.masters = config::Masters::split;
        const Found found = train(config, true), expected = train(config, false);
        const bool shared = world_.size() / replicate > 1;
        EXPECT_EQ(found.common, shared ? found.blocks : 0) << config::print_run_file(config);
        EXPECT_EQ(expected.common, 0U);
        expect_same(found, expected, config);
        EXPECT_EQ(expected.charged, expected.shards * (!bf16 ? 4 : split ? 4 : 6));
        // Others take a megabyte at least, as `small_windows` has it.
        if (shared && !bf16) {
          EXPECT_EQ(found.charged, expected.charged);
        }
      }
}

TEST_F(CommonShards, AreNotThoseOnTheHostOrPoisonedOrOfGroups) {
  const auto none_of = [&](const config::RunConfig& config, bool poison) {
    const Found found = train(config, true, poison);
    EXPECT_EQ(found.common, 0U) << config::print_run_file(config);
    expect_same(found, train(config, false), config);
  };
  const config::RunConfig plain = test::odd_run(files_, 3);
  none_of(plain, true);
  config::RunConfig offloaded = plain;
  offloaded.memory.offload = config::Offload::optimizer;
  none_of(offloaded, false);
  if (world_.size() != 4) return;
  config::RunConfig in_groups = plain;
  in_groups.sync.reshard_after_forward = 2;
  none_of(in_groups, false);
}

TEST_F(CommonShards, AreSomeWhereTheOthersAreOnTheHost) {
  config::RunConfig config = test::odd_run(files_, 3);
  config.memory = {.offload = config::Offload::parameters, .offload_fraction = 0.5};
  const Found found = train(config, true);
  if (world_.size() > 1) {
    EXPECT_GT(found.common, 0U);
    EXPECT_LT(found.common, found.blocks);
  }
  expect_same(found, train(config, false), config);
}

}  // namespace
}  // namespace trireme::train::common_shards_mpi_test
