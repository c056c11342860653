// SPDX-License-Identifier: Apache-2.0
//
// precision.masters = split gives the bits of fp32 masters whose bf16 copy is rounded with ties away from zero, in less
// memory, and checkpoints of either are read as both.
//
// ranks: 1 2
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/jobs.hpp"
#include "support/shared_directory.hpp"
#include "support/tensors.hpp"
#include "support/training/mixtures.hpp"
#include "train/save/restart.hpp"
#include "trireme/train/run.hpp"

namespace trireme::train::split_masters_mpi_test {
namespace {

using config::Masters;

class SplitMasters : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(Masters masters, int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.precision = {.compute = DType::bf16, .masters = masters};
    config.batch.micro = config.batch.global / (world_.size() * 4);
    return config;
  }
  /// Losses and norms of `trireme train`, run to step 3 and resumed with the other kind of masters; on rank 0.
  [[nodiscard]] std::vector<double> resumed(Masters masters, Masters then) const {
    const test::SharedDirectory directory(world_);
    config::RunConfig config = in_directory(directory, masters);
    config.train.steps = 3;
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    config.precision.masters = then;
    config.train.steps = 6;
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    return curve_of(config);
  }
  /// The same without a stop.
  [[nodiscard]] std::vector<double> straight(Masters masters) const {
    const test::SharedDirectory directory(world_);
    const config::RunConfig config = in_directory(directory, masters);
    EXPECT_EQ(run_training(config, world_), ExitCode::done);
    return curve_of(config);
  }
  [[nodiscard]] config::RunConfig in_directory(const test::SharedDirectory& directory, Masters masters) const {
    config::RunConfig config = run(masters, 6);
    config.run.output = directory.path() + "/out";
    config.checkpoint.directory = directory.path() + "/checkpoints";
    config.lr.end_step = 6;
    config.device.type = config::DeviceType::cpu;
    return config;
  }
  [[nodiscard]] std::vector<double> curve_of(const config::RunConfig& config) const {
    std::vector<double> values;
    std::ifstream file(config.run.output + "/metrics.jsonl");
    for (std::string line; world_.rank() == 0 && std::getline(file, line);) {
      const auto row = nlohmann::json::parse(line);
      if (!row.contains("loss")) continue;
      values.push_back(row["loss"].get<double>());
      values.push_back(row["grad_norm"].get<double>());
    }
    return values;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(SplitMasters, GiveTheBitsOfFp32RoundedAwayWhereverTheyLie) {
  for (const auto offload : {config::Offload::none, config::Offload::optimizer, config::Offload::parameters}) {
    const auto found = [&](Masters masters, bool rounded_away) {
      config::RunConfig config = run(masters, 8);
      config.optimizer.weight_decay = 0;  // tokens that no microbatch has keep their ties
      config.memory.offload = offload;
      config.memory.offload_fraction = offload == config::Offload::parameters ? 0.5 : 1;
      return test::train_job_from_ties(config, world_, {}, rounded_away);
    };
    const test::Outcome split = found(Masters::split, false), expected = found(Masters::fp32, true);
    EXPECT_EQ(split.curve.losses, expected.curve.losses);
    EXPECT_EQ(split.curve.grad_norms, expected.curve.grad_norms);
    for (std::size_t b = 0; b < expected.masters.size(); ++b)
      EXPECT_TRUE(test::same_bits(split.masters[b], expected.masters[b])) << "block " << b;
    EXPECT_NE(found(Masters::fp32, false).curve.losses, expected.curve.losses) << "ties to even are other bits";
  }
}

TEST_F(SplitMasters, ResumeToTheBitAndFromCheckpointsOfFp32AndTheOtherWayRound) {
  const std::vector<double> expected = resumed(Masters::split, Masters::split);
  EXPECT_EQ(expected.size(), world_.rank() == 0 ? 12U : 0U);
  EXPECT_EQ(straight(Masters::split), expected);
  for (const auto& [first, then] : {std::pair{Masters::fp32, Masters::split}, {Masters::split, Masters::fp32}}) {
    const std::vector<double> found = resumed(first, then);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-3 * expected[i]) << i;
  }
}

/// A router's biases, which no gradient steps, and whose fp32 numbers lie beside the masters too.
class SplitBiases : public Restart {
 protected:
  [[nodiscard]] config::RunConfig mixture(const std::string& name, Masters masters, int steps) const {
    config::RunConfig config = test::odd_mixture(files_, steps);
    test::make_glm(config);
    const config::RunConfig files = run(name, steps);
    config.run.output = files.run.output;
    config.checkpoint.directory = files.checkpoint.directory;
    config.lr.end_step = restart_steps;
    config.precision = {.compute = DType::bf16, .masters = masters};
    config.device.type = config::DeviceType::cpu;
    return config;
  }
};

TEST_F(SplitBiases, AreThoseOfFp32) {
  for (const auto offload : {config::Offload::none, config::Offload::optimizer, config::Offload::parameters}) {
    const auto found = [&](Masters masters) {
      config::RunConfig config = mixture("unused", masters, 4);
      config.memory.offload = offload;
      config.memory.offload_fraction = offload == config::Offload::parameters ? 0.5 : 1;
      return test::train_job_from_ties(config, world_, {}, masters == Masters::fp32);
    };
    const test::Outcome split = found(Masters::split), expected = found(Masters::fp32);
    EXPECT_EQ(split.curve, expected.curve);
    EXPECT_EQ(split.expert_tokens, expected.expert_tokens);
    for (std::size_t b = 0; b < expected.masters.size(); ++b)
      EXPECT_TRUE(test::same_bits(split.masters[b], expected.masters[b])) << "block " << b;
  }
}

TEST_F(SplitBiases, ResumeToTheBit) {
  const config::RunConfig straight = mixture("straight", Masters::split, restart_steps),
                          first = mixture("resumed", Masters::split, restart_steps / 2),
                          resumed = mixture("resumed", Masters::split, restart_steps);
  for (const config::RunConfig& config : {straight, first, resumed})
    EXPECT_EQ(train(config, world_.size()), ExitCode::done);
  if (world_.rank() == 0) expect_same_end(straight, resumed);
}

}  // namespace
}  // namespace trireme::train::split_masters_mpi_test
