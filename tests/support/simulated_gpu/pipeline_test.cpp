// SPDX-License-Identifier: Apache-2.0
//
// Slots between pipeline ranks on a GPU: what orders their copies and messages, each left out once, which on a real GPU
// would be a race that may be won; and evaluations between steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "support/jobs.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::train::simulated_pipeline_test {
namespace {

using schedule::Lane;

class DevicePipeline : public testing::Test {
 protected:
  void SetUp() override {
    const device::GpuProbe probe = device::probe_gpus();
    if (probe.gpus.empty()) GTEST_SKIP() << probe.reason;
    if (world_.size() != 2) GTEST_SKIP() << "needs two ranks";
    device_ = device::use_gpu(world_.rank() % static_cast<int>(probe.gpus.size()));
    nccl_ = probe.gpus.size() >= 2;
  }
  [[nodiscard]] config::RunConfig run(int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.mesh.pipeline = 2;
    // Nothing but their needs orders slots: messages run ahead as far as there are some, and no gather waits for
    // compute.
    config.pipeline.schedule = config::PipelineKind::gpipe;
    config.sync = {.policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
    config.model.layers = 2;
    config.model.tie_embeddings = true;
    config.batch.global = 16;
    config.batch.micro = 2;
    return config;
  }
  [[nodiscard]] JobOptions options() const {
    return {.device = device_, .link = nccl_ ? comm::DeviceLink::nccl : comm::DeviceLink::staged, .poison = true};
  }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  bool nccl_ = false;
};

/// Needs between two verbs of a pipeline.
template <class From, class To>
bool is_between(const schedule::Schedule& list, const schedule::Need& need) {
  return std::holds_alternative<From>(list.ops[static_cast<std::size_t>(need.from)]) &&
         std::holds_alternative<To>(list.ops[static_cast<std::size_t>(need.to)]);
}

struct Kind {
  std::string name;
  bool (*is)(const schedule::Schedule&, const schedule::Need&);
  bool by_events;  ///< seen on one thread where streams run late; else a slow lane shows it
};
const Kind kinds[] = {
    {"a slot is sent after it was put", is_between<schedule::Put, schedule::Send>, true},
    {"a slot is put after it was sent", is_between<schedule::Send, schedule::Put>, false},
    {"a slot is taken after it was received", is_between<schedule::Receive, schedule::Take>, false},
    {"a slot is received after it was taken", is_between<schedule::Take, schedule::Receive>, true},
};

TEST_F(DevicePipeline, MissesEveryNeedOfItsSlots) {
  const bool late = std::getenv("TRIREME_SIMULATED_GPU") != nullptr;
  constexpr std::array slow_lanes{Lane::compute, Lane::send, Lane::receive};
  const auto losses = [&](const Kind* without, std::optional<Lane> slow, int milliseconds) {
    JobOptions how = options();
    how.lane_threads = slow.has_value();
    schedule::Schedule list;
    how.needs = [&](const schedule::Schedule& step, const model::Model& model) {
      list = step;
      std::vector<schedule::Need> needs = schedule::needs(step, model);
      std::erase_if(needs, [&](const schedule::Need& need) { return without != nullptr && without->is(step, need); });
      return needs;
    };
    how.on_op = [&](int op, std::int64_t) {
      // Of compute one rank's, which falls behind the other.
      if (slow && schedule::lane_of(list.ops[static_cast<std::size_t>(op)]) == *slow &&
          (*slow != Lane::compute || world_.rank() == 1))
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
    const test::Curve curve = test::train_job(run(2), world_, how).curve;
    double sum = 0;
    for (std::size_t i = 0; i < curve.losses.size(); ++i) sum += curve.losses[i] + curve.grad_norms[i];
    return sum;
  };
  const double expected = losses(nullptr, std::nullopt, 0);
  for (const Kind& kind : kinds) {
    if (late) {
      if (kind.by_events) {
        EXPECT_NE(losses(&kind, std::nullopt, 0), expected) << "nobody misses that " << kind.name;
      }
      continue;
    }
    // Where a busy machine makes the other lanes slow too, one has to be slower.
    const bool seen = std::ranges::any_of(std::array{1, 10, 50}, [&](int milliseconds) {
      return std::ranges::any_of(slow_lanes, [&](Lane slow) { return losses(&kind, slow, milliseconds) != expected; });
    });
    EXPECT_TRUE(seen) << "nobody misses that " << kind.name;
  }
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
  const std::vector<double> expected = evaluated({}), found = evaluated(options());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6 * expected[i]) << "at " << i;
}

}  // namespace
}  // namespace trireme::train::simulated_pipeline_test
