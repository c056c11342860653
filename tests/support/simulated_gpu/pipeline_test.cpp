// SPDX-License-Identifier: Apache-2.0
//
// Slots between pipeline ranks on a GPU: what orders their copies and messages, each left out once, which on a real GPU
// would be a race that may be won; and evaluations between steps.
#include <gtest/gtest.h>

#include <utility>
#include <variant>
#include <vector>

#include "support/jobs.hpp"
#include "support/simulated_gpu/missed_needs.hpp"
#include "support/training/gpu_jobs.hpp"

namespace trireme::train::simulated_pipeline_test {
namespace {

using schedule::Lane;

class DevicePipeline : public test::GpuJobs<> {
 protected:
  void SetUp() override {
    GpuJobs::SetUp();
    if (!IsSkipped() && world_.size() != 2) GTEST_SKIP() << "needs two ranks";
    options_.link = gpus_ >= 2 ? comm::DeviceLink::nccl : comm::DeviceLink::staged;
  }
  [[nodiscard]] config::RunConfig run(int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.mesh.pipeline = 2;
    // Slots are ordered by needs only: messages run ahead as
    // far as there are some, and no gather waits for compute.
    config.pipeline.schedule = config::PipelineKind::gpipe;
    config.sync = {.policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
    config.model.layers = 2;
    config.model.tie_embeddings = true;
    config.batch.global = 16;
    config.batch.micro = 2;
    return config;
  }

  test::TokenFiles files_{world_, 257};
};

template <class From, class To>
bool is_between(const schedule::Op& from, const schedule::Op& to) {
  return std::holds_alternative<From>(from) && std::holds_alternative<To>(to);
}

const test::NeedKind kinds[] = {
    {.name = "a slot is sent after it was put",
     .is = is_between<schedule::Put, schedule::Send>,
     .events_to = 2,
     .lanes_from = 2},
    {.name = "a slot is put after it was sent", .is = is_between<schedule::Send, schedule::Put>, .lanes_from = 2},
    {.name = "a slot is taken after it was received",
     .is = is_between<schedule::Receive, schedule::Take>,
     .lanes_from = 2},
    {.name = "a slot is received after it was taken",
     .is = is_between<schedule::Take, schedule::Receive>,
     .events_to = 2,
     .lanes_from = 2},
};

TEST_F(DevicePipeline, MissesEveryNeedOfItsSlots) {
  const test::MissedNeeds missed{
      .config = run(2),
      .options = options_,
      .slow_lanes = {Lane::compute, Lane::send, Lane::receive},
      // Compute is slow on one rank, which falls behind the other.
      .is_slow_here = [&](Lane slow) { return slow != Lane::compute || world_.rank() == 1; }};
  missed.expect_all(kinds, world_);
}

TEST_F(DevicePipeline, EvaluatesBetweenStepsWhatTheCpuDoes) {
  config::RunConfig config = run(3);
  config.data.validation = config.data.train;
  const auto evaluated = [&](JobOptions how) {
    how.lane_threads = false;
    std::vector<double> losses;
    Job job(config, world_, std::move(how));
    job.store().fill(test::lively_values(test::values_seed));
    data::BatchReader train(config.data, data::Split::train, config.model.vocab_size, config.run.seed,
                            job.batch_shape(), {});
    data::BatchShape shape = job.batch_shape();
    shape.accumulation = 1;
    for (int round = 0; round < 3; ++round) {
      data::BatchReader reader(config.data, data::Split::validation, config.model.vocab_size, config.run.seed, shape);
      losses.push_back(job.evaluate(reader, 4).loss);
      losses.push_back(job.step(train.next(), 1e-4, true).loss);
    }
    return losses;
  };
  const std::vector<double> expected = evaluated({}), found = evaluated(options_);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6 * expected[i]) << "at " << i;
}

}  // namespace
}  // namespace trireme::train::simulated_pipeline_test
