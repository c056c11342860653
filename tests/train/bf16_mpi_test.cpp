// SPDX-License-Identifier: Apache-2.0
//
// bf16 compute with fp32 masters, fp32 accumulation and fp32 reduction.
// ranks: 1 3
#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/jobs.hpp"

namespace trireme::train {
namespace {

double squares(const at::Tensor& x) { return std::pow(at::linalg_vector_norm(x.to(at::kDouble)).item<double>(), 2); }

class Bf16 : public testing::Test {
 protected:
  [[nodiscard]] config::RunConfig run(int steps, DType compute = DType::bf16) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.precision.compute = compute;
    config.batch.micro = config.batch.global / (world_.size() * 4);
    return config;
  }

  /// This rank's reduced gradients of the first step, by block, times 1 - beta1: what moments are then.
  [[nodiscard]] std::vector<at::Tensor> first_gradients(config::RunConfig config) const {
    std::vector<at::Tensor> gradients;
    config.optimizer.clip_norm = 0;
    (void)test::train_job(config, world_, {}, [&](Job& job, int) {
      for (int b = 0; b < job.model().param_blocks(); ++b)
        gradients.push_back(job.store().state(ParamBlock{b}, 0).clone());
    });
    return gradients;
  }

  /// Over the whole job, in the L2 norm.
  [[nodiscard]] double relative_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) const {
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      difference += squares(a[i] - b[i]);
      size += squares(b[i]);
    }
    return std::sqrt(sum_over_ranks(difference) / sum_over_ranks(size));
  }

  [[nodiscard]] double sum_over_ranks(double value) const {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, world_.handle());
    return value;
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
};

TEST_F(Bf16, FollowsTheCurveOfFp32WithinItsRounding) {
  constexpr int steps = 40;
  const test::Curve bf16 = test::train_job(run(steps), world_).curve;
  const test::Curve fp32 = test::train_job(run(steps, DType::fp32), world_).curve;
  const test::Deviation found = test::deviation(bf16, fp32);
  EXPECT_LT(found.loss, 5e-3);
  EXPECT_GT(found.loss, 1e-6) << "fp32 in disguise";
  EXPECT_LT(bf16.losses.back(), bf16.losses.front() - 0.5);
  // No drift: the mean over the last steps is closer than single losses are.
  double drift = 0;
  for (int step = steps / 2; step < steps; ++step) drift += (bf16.losses[step] / fp32.losses[step] - 1) / (steps / 2);
  EXPECT_LT(std::abs(drift), 1e-3);
}

TEST_F(Bf16, OnTheWireOnlyMovesGradientsByItsRounding) {
  for (const auto reduce : {config::Reduce::bf16_wire, config::Reduce::bf16}) {
    config::RunConfig rounded = run(1);
    rounded.precision.reduce = reduce;
    const double difference = relative_difference(first_gradients(rounded), first_gradients(run(1)));
    EXPECT_LT(difference, reduce == config::Reduce::bf16_wire ? 2e-3 : 4e-3);
    if (world_.size() > 1) {
      EXPECT_GT(difference, 1e-5) << "fp32 in disguise";
    }
  }
}

TEST_F(Bf16, GradientsOfBothPoliciesDifferByFp32Rounding) {
  config::RunConfig deferred = run(1);
  deferred.sync.policy = config::SyncPolicy::deferred;
  EXPECT_LT(relative_difference(first_gradients(run(1)), first_gradients(deferred)), 1e-6);
}

}  // namespace
}  // namespace trireme::train
