// SPDX-License-Identifier: Apache-2.0
//
// A number that is not finite on one rank, a spike, or a step in which no target counts: all ranks skip the step alike,
// and continue as if its update had been zero.
// ranks: 1 2 3
#include <gtest/gtest.h>

#include <cmath>

#include "support/jobs.hpp"
#include "support/tensors.hpp"
#include "support/training/mixtures.hpp"
#include "trireme/base/fault.hpp"

namespace trireme::train::skip_mpi_test {
namespace {

constexpr int steps = 8;
constexpr int bad_step = 3;

/// Poisons the gradients of one rank in one step while it lives, or another point's value.
class BadGradient {
 public:
  BadGradient(const mpi::Communicator& world, int rank, const std::string& point = "grad.reduce", int step = bad_step) {
    fault::set_rank(world.rank());
    fault::set_step(0);
    fault::arm(point + ":nan:" + std::to_string(rank) + ":" + std::to_string(step));
  }
  BadGradient(const BadGradient&) = delete;
  BadGradient& operator=(const BadGradient&) = delete;
  ~BadGradient() {
    fault::arm("");
    fault::set_rank(-1);
    fault::set_step(-1);
  }
};

class Skip : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(config::SyncPolicy policy) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.sync.policy = policy;
    config.batch.micro = config.batch.global / (world_.size() * 4);
    return config;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(Skip, IsAgreedByAllRanksAndLeavesNoTrace) {
  const int bad_rank = world_.size() - 1;
  for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
    const config::RunConfig config = run(policy);
    std::vector<std::vector<at::Tensor>> masters;
    test::Outcome found;
    {
      const BadGradient fault(world_, bad_rank);
      found = test::train_job(config, world_, {.lane_threads = true}, [&](Job& job, int step) {
        fault::set_step(step + 1);
        if (step != bad_step - 1 && step != bad_step) return;
        masters.emplace_back();
        for (int b = 0; b < job.model().param_blocks(); ++b)
          masters.back().push_back(job.store().master(ParamBlock{b}).clone());
      });
    }
    std::vector<bool> expected(steps, false);
    expected[bad_step] = true;
    EXPECT_EQ(found.skipped, expected);
    EXPECT_FALSE(std::isfinite(found.curve.grad_norms[bad_step]));
    for (std::size_t b = 0; b < masters[0].size(); ++b)
      EXPECT_TRUE(test::same_bits(masters[0][b], masters[1][b])) << "block " << b;
  }
}

/// Loads of a skipped step count for nothing.
TEST_F(Skip, MovesNoCorrectionBias) {
  config::RunConfig config = test::odd_mixture(files_, bad_step + 2);
  test::make_glm(config);
  config.batch.micro = config.batch.global / (world_.size() * 4);
  std::vector<at::Tensor> biases;  // of the first router, by step
  const BadGradient fault(world_, world_.size() - 1);
  (void)test::train_job(config, world_, {}, [&](Job& job, int step) {
    fault::set_step(step + 1);
    for (int b = 0; b < job.model().param_blocks(); ++b)
      if (const at::Tensor& bias = job.store().choice_bias(ParamBlock{b}); bias.defined()) {
        biases.push_back(bias.clone());
        return;
      }
  });
  ASSERT_EQ(biases.size(), bad_step + 2U);
  EXPECT_TRUE(test::same_bits(biases[bad_step - 1], biases[bad_step]));
  EXPECT_FALSE(test::same_bits(biases[bad_step], biases[bad_step + 1]));
}

// The gradients are finite: only the loss is not.
TEST_F(Skip, IsForAnInfiniteLossWithFiniteGradientsToo) {
  const config::RunConfig config = run(config::SyncPolicy::immediate);
  const BadGradient fault(world_, world_.size() - 1, "loss.sum");
  const test::Outcome found = test::train_job(config, world_, {}, [](Job&, int step) { fault::set_step(step + 1); });
  std::vector<bool> expected(steps, false);
  expected[bad_step] = true;
  EXPECT_EQ(found.skipped, expected);
  EXPECT_TRUE(std::isinf(found.curve.losses[bad_step]));
  EXPECT_TRUE(std::isfinite(found.curve.grad_norms[bad_step]));
  EXPECT_TRUE(std::isfinite(found.curve.losses[bad_step + 1]));
}

TEST_F(Skip, ConsumesItsDataAndLearningRateButNotAdamsCount) {
  const config::RunConfig config = run(config::SyncPolicy::immediate);
  test::Curve expected = test::plain_curve(config, world_, {bad_step});
  test::Curve found;
  {
    const BadGradient fault(world_, 0);
    found = test::train_job(config, world_, {.lane_threads = true}, [](Job&, int step) {
              fault::set_step(step + 1);
            }).curve;
  }
  found.grad_norms[bad_step] = expected.grad_norms[bad_step];  // not a number
  const test::Deviation deviation = test::deviation(found, expected);
  EXPECT_LE(deviation.loss, 1e-6);
  EXPECT_LE(deviation.grad_norm, 1e-5);
}

/// Steps in which no target counts, and steps in which those of some ranks alone do not.
class Silence : public Skip {
 protected:
  /// The samples of steps 0, 3 and 4 are silent, and the first half of those of step 6.
  [[nodiscard]] config::RunConfig silent_run() const {
    config::RunConfig config = run(config::SyncPolicy::immediate);
    const std::int64_t batch = config.batch.global;
    config.data.train = files_.sources_with_silence(steps * batch, config.data.seq_len, [batch](std::int64_t sample) {
      const std::int64_t step = sample / batch;
      return step == 0 || step == 3 || step == 4 || (step == 6 && sample % batch < batch / 2);
    });
    config.optimizer.weight_decay = 0.5;
    config.loss.z_loss = 1e-2;
    return config;
  }
  static inline const std::vector<bool> expected_skips{true, false, false, true, true, false, false, false};
};

TEST_F(Silence, UpdatesNothingWithoutATargetOnEveryMesh) {
  const config::RunConfig config = silent_run();
  const test::Curve expected = test::plain_curve(config, world_);
  const int n = world_.size();
  struct Axes {
    int replicate, tensor, pipeline;
  };
  for (const Axes& axes : {Axes{1, 1, 1}, Axes{n, 1, 1}, Axes{1, n == 3 ? 1 : n, 1}, Axes{1, 1, n}})
    for (const auto policy : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
      config::RunConfig other = config;
      other.sync.policy = policy;
      other.mesh.replicate = axes.replicate;
      other.mesh.tensor = axes.tensor;
      other.mesh.pipeline = axes.pipeline;
      other.batch.micro = config.batch.global / (n * 4);
      std::vector<at::Tensor> before;
      const test::Outcome found = test::train_job(other, world_, {.lane_threads = true}, [&](Job& job, int step) {
        job.finish_updates();
        const at::Tensor& masters = job.store().master(ParamBlock{0});
        if (step > 0) {
          EXPECT_EQ(test::same_bits(before.back(), masters), expected_skips[static_cast<std::size_t>(step)]) << step;
        }
        before.push_back(masters.clone());
      });
      EXPECT_EQ(found.skipped, expected_skips);
      EXPECT_TRUE(std::isnan(found.curve.losses[0]) && std::isnan(found.curve.z_losses[0]));
      const test::Deviation deviation = test::deviation(found.curve, expected);
      EXPECT_LE(deviation.loss, 1e-6);
      EXPECT_LE(deviation.grad_norm, 1e-5);
    }
}

TEST_F(Silence, MovesNoCorrectionBiasOfARouter) {
  config::RunConfig config = test::odd_mixture(files_, 2);
  test::make_glm(config);
  config.loss.balance_loss = 1e-2;  // has a gradient without targets, too
  config.batch.micro = config.batch.global / (world_.size() * 4);
  config.data.train = files_.sources_with_silence(2 * config.batch.global, config.data.seq_len,
                                                  [&](std::int64_t sample) { return sample >= config.batch.global; });
  std::vector<at::Tensor> biases, masters;
  const test::Outcome found = test::train_job(config, world_, {}, [&](Job& job, int) {
    job.finish_updates();
    masters.push_back(job.store().master(ParamBlock{0}).clone());
    for (int b = 0; b < job.model().param_blocks(); ++b)
      if (const at::Tensor& bias = job.store().choice_bias(ParamBlock{b}); bias.defined())
        biases.push_back(bias.clone());
  });
  EXPECT_EQ(found.skipped, (std::vector<bool>{false, true}));
  EXPECT_TRUE(test::same_bits(masters[0], masters[1]));
  ASSERT_FALSE(biases.empty());
  for (std::size_t b = 0; b < biases.size() / 2; ++b)
    EXPECT_TRUE(test::same_bits(biases[b], biases[b + biases.size() / 2]));
}

/// A step of constant samples after 70 of others.
class Spike : public Skip {
 protected:
  static constexpr int poisoned = 70;

  [[nodiscard]] config::RunConfig poisoned_run() const {
    config::RunConfig config = run(config::SyncPolicy::immediate);
    config.train.steps = poisoned + 4;
    config.model.layers = 2;
    config.batch = {.global = 12, .micro = 2};  // tokens are even: divided over two tensor ranks
    config.data.train =
        files_.sources_with_constants(config.train.steps * config.batch.global, config.data.seq_len,
                                      [&](std::int64_t sample) { return sample / config.batch.global == poisoned; });
    config.lr.warmup_steps = 0;
    config.optimizer.lr = 1e-5;  // the loss is level
    return config;
  }
  static std::vector<bool> only_the_poisoned() {
    std::vector<bool> steps(poisoned + 4, false);
    steps[poisoned] = true;
    return steps;
  }
};

TEST_F(Spike, LeavesTheBitsOfARunWithoutThatUpdateOnEveryMesh) {
  const int n = world_.size();
  struct Axes {
    int replicate, tensor, pipeline;
    config::SyncPolicy policy = config::SyncPolicy::immediate;
    config::Offload offload = config::Offload::none;
  };
  std::vector<Axes> meshes{{1, 1, 1}, {n, 1, 1, config::SyncPolicy::deferred, config::Offload::optimizer}};
  if (n == 2) meshes.insert(meshes.end(), {{1, n, 1}, {1, 1, n}});
  for (const Axes& axes : meshes) {
    config::RunConfig config = poisoned_run();
    config.sync.policy = axes.policy;
    config.mesh.replicate = axes.replicate;
    config.mesh.tensor = axes.tensor;
    config.mesh.pipeline = axes.pipeline;
    config.memory.offload = axes.offload;
    test::Outcome by_hand;
    {  // a gradient is made NaN, so that its update is left out
      const BadGradient fault(world_, n - 1, "grad.reduce", poisoned);
      by_hand = test::train_job(config, world_, {}, [](Job&, int step) { fault::set_step(step + 1); });
    }
    config.train.skip_spikes = true;
    const test::Outcome found = test::train_job(config, world_);
    EXPECT_EQ(found.skipped, only_the_poisoned());
    EXPECT_EQ(by_hand.skipped, only_the_poisoned());
    for (std::size_t b = 0; b < found.masters.size(); ++b) {
      EXPECT_TRUE(test::same_bits(found.masters[b], by_hand.masters[b])) << "block " << b;
    }
  }
}

/// Norms of blocks are the parts of the whole one.
TEST_F(Spike, ShowsInTheNormsOfItsBlocks) {
  const int n = world_.size();
  for (const auto& [tensor, pipeline] : {std::pair{1, 1}, {n == 3 ? 1 : n, 1}, {1, n == 3 ? 1 : n}}) {
    config::RunConfig config = poisoned_run();
    config.train.steps = 2;
    config.model.tie_embeddings = pipeline > 1;  // two pipeline ranks have it
    config.mesh.tensor = tensor;
    config.mesh.pipeline = pipeline;
    config.metrics.block_norms = true;
    const test::Outcome found = test::train_job(config, world_);
    ASSERT_EQ(found.block_grad_norms.size(), 4U);
    double squares = 0;
    for (const double norm : found.block_grad_norms) {
      EXPECT_GT(norm, 0);
      squares += norm * norm;
    }
    EXPECT_NEAR(std::sqrt(squares), found.curve.grad_norms.back(), 1e-9 * found.curve.grad_norms.back());
  }
}

}  // namespace
}  // namespace trireme::train::skip_mpi_test
