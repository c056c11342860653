// SPDX-License-Identifier: Apache-2.0
//
// precision.masters = split gives the bits of fp32 masters whose bf16 copy is rounded with ties away from zero, in less
// memory, and checkpoints of either are read as both.
//
// ranks: 1 2
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "support/jobs.hpp"
#include "support/tensors.hpp"
#include "support/training/mixtures.hpp"
#include "train/save/restart.hpp"

namespace trireme::train::split_masters_mpi_test {
namespace {

using config::Masters;

class SplitMasters : public Restart {
 protected:
  [[nodiscard]] config::RunConfig of_masters(config::RunConfig config, Masters masters) const {
    config.precision = {.compute = DType::bf16, .masters = masters};
    config.batch.micro = config.batch.global / (world_.size() * 4);
    return config;
  }
  /// Losses and norms of `trireme train` to the end, after it was run to `stop` with masters `first`.
  [[nodiscard]] test::Curve resumed(const std::string& name, int stop, Masters first, Masters then) const {
    for (const auto& [last, masters] : {std::pair{stop, first}, {restart_steps, then}}) {
      config::RunConfig config = of_masters(run(name, last), masters);
      config.device.type = config::DeviceType::cpu;
      EXPECT_EQ(train(config, world_.size()), ExitCode::done);
    }
    return curve(run(name, restart_steps));
  }
};

TEST_F(SplitMasters, GiveTheBitsOfFp32RoundedAwayWhereverTheyLie) {
  for (const auto offload : {config::Offload::none, config::Offload::optimizer, config::Offload::parameters}) {
    const auto found = [&](Masters masters, bool rounded_away) {
      config::RunConfig config = of_masters(test::odd_run(files_, 8), masters);
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
  const test::Curve expected = resumed("split", restart_steps / 2, Masters::split, Masters::split);
  EXPECT_EQ(expected.losses.size(), static_cast<std::size_t>(restart_steps));
  EXPECT_EQ(resumed("straight", restart_steps, Masters::split, Masters::split), expected);
  for (const auto& [name, first, then] :
       {std::tuple{"of fp32", Masters::fp32, Masters::split}, {"to fp32", Masters::split, Masters::fp32}}) {
    const test::Curve found = resumed(name, restart_steps / 2, first, then);
    ASSERT_EQ(found.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < found.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-3 * expected.losses[i]) << i;
      EXPECT_NEAR(found.grad_norms[i], expected.grad_norms[i], 1e-3 * expected.grad_norms[i]) << i;
    }
  }
}

/// A router's biases, which are not updated by gradients, and whose fp32 values are stored with the masters.
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
