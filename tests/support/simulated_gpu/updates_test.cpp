// SPDX-License-Identifier: Apache-2.0
//
// Updates run beside the next forward on a GPU, and nothing but their needs orders the two.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "support/jobs.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::train::simulated_updates_test {
namespace {

using schedule::Lane;

class DeviceUpdates : public testing::Test {
 protected:
  void SetUp() override {
    const device::GpuProbe probe = device::probe_gpus();
    if (probe.gpus.empty()) GTEST_SKIP() << probe.reason;
    if (world_.size() > 2) GTEST_SKIP() << "one rank and two are enough";
    device_ = device::use_gpu(world_.rank() % static_cast<int>(probe.gpus.size()));
  }
  [[nodiscard]] config::RunConfig run(int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.batch.global = 16;
    config.batch.micro = 4;
    return config;
  }
  [[nodiscard]] JobOptions options() const { return {.device = device_, .link = comm::DeviceLink::staged}; }

  mpi::Communicator world_ = mpi::Communicator::from(MPI_COMM_WORLD);
  test::TokenFiles files_{world_, 257};
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
};

struct Kind {
  std::string name;
  bool (*is)(const schedule::Op& from, const schedule::Op& to);
  int events_to = 0;   ///< ranks up to which late streams show it, on one thread; 0: they never do
  int lanes_from = 0;  ///< ranks from which a slow lane shows it; 0: none does
};
bool frees(const schedule::Op& op) { return std::holds_alternative<schedule::FreeGradient>(op); }
bool reads_behind_update(const schedule::Op& from, const schedule::Op& to) {
  return std::holds_alternative<schedule::Update>(from) && schedule::lane_of(to) != Lane::optimizer &&
         !std::holds_alternative<schedule::ClipNorm>(to);
}
const Kind kinds[] = {
    // Where one rank gathers a block its first reader is behind free_gradient, on the same lane.
    {.name = "a block is read after its update", .is = reads_behind_update, .events_to = 2},
    {.name = "a block is gathered after its update",
     .is = [](const schedule::Op& from, const schedule::Op& to) { return reads_behind_update(from, to) && !frees(to); },
     .lanes_from = 2},
    // Several ranks gather the block first, behind its update.
    {.name = "gradient shards are freed behind updates",
     .is = [](const schedule::Op& from, const schedule::Op& to) { return reads_behind_update(from, to) && frees(to); },
     .events_to = 1},
    {.name = "updates follow the norm",
     .is =
         [](const schedule::Op& from, const schedule::Op& to) {
           return std::holds_alternative<schedule::ClipNorm>(from) && std::holds_alternative<schedule::Update>(to);
         },
     .lanes_from = 1},
};

TEST_F(DeviceUpdates, MissEveryNeedBetweenThemAndTheForward) {
  const char* const mode = std::getenv("TRIREME_SIMULATED_GPU");
  const bool late = mode != nullptr;
  // Where the compute stream alone is late, updates come before what reads them without being told.
  const bool updates_are_late = late && std::string(mode) == "late";
  constexpr std::array slow_lanes{Lane::compute, Lane::optimizer};
  const auto losses = [&](const Kind* without, std::optional<Lane> slow, int milliseconds) {
    JobOptions how = options();
    how.lane_threads = slow.has_value();
    schedule::Schedule list;
    how.needs = [&](const schedule::Schedule& step, const model::Model& model) {
      list = step;
      std::vector<schedule::Need> needs = schedule::needs(step, model);
      const std::size_t all = needs.size();
      std::erase_if(needs, [&](const schedule::Need& need) {
        return without != nullptr &&
               without->is(step.ops[static_cast<std::size_t>(need.from)], step.ops[static_cast<std::size_t>(need.to)]);
      });
      EXPECT_EQ(needs.size() < all, without != nullptr);
      return needs;
    };
    how.on_op = [&](int op, std::int64_t) {
      if (slow && schedule::lane_of(list.ops[static_cast<std::size_t>(op)]) == *slow)
        std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    };
    const test::Curve curve = test::train_job(run(3), world_, how).curve;
    double sum = 0;
    for (std::size_t i = 0; i < curve.losses.size(); ++i) sum += curve.losses[i] + curve.grad_norms[i];
    return sum;
  };
  const double expected = losses(nullptr, std::nullopt, 0);
  for (const Kind& kind : kinds) {
    if (late) {
      if (world_.size() <= kind.events_to && updates_are_late) {
        EXPECT_NE(losses(&kind, std::nullopt, 0), expected) << "nobody misses that " << kind.name;
      }
      continue;
    }
    if (kind.lanes_from == 0 || kind.lanes_from > world_.size()) continue;
    // Where a busy machine makes the other lanes slow too, one has to be slower.
    const bool seen = std::ranges::any_of(std::array{1, 10, 50}, [&](int milliseconds) {
      return std::ranges::any_of(slow_lanes, [&](Lane slow) { return losses(&kind, slow, milliseconds) != expected; });
    });
    EXPECT_TRUE(seen) << "nobody misses that " << kind.name;
  }
}

TEST_F(DeviceUpdates, AreOverWhenSomebodyReadsMastersBetweenSteps) {
  const auto masters = [&](bool rests) {
    Job job(run(2), world_, options());
    job.store().fill(test::lively_values(test::values_seed));
    data::BatchReader train(job.config().data, data::Split::train, job.config().model.vocab_size, 1, job.batch_shape(),
                            {});
    (void)job.step(train.next(), 1e-2, rests);
    job.finish_updates();
    std::vector<at::Tensor> found;
    for (int b = 0; b < job.model().param_blocks(); ++b)
      found.push_back(device::on_host(job.store().master(ParamBlock{b})));
    (void)job.step(train.next(), 1e-2, true);
    return found;
  };
  const std::vector<at::Tensor> expected = masters(true), found = masters(false);
  for (std::size_t b = 0; b < expected.size(); ++b) EXPECT_TRUE(found[b].equal(expected[b])) << "block " << b;
}

}  // namespace
}  // namespace trireme::train::simulated_updates_test
