// SPDX-License-Identifier: Apache-2.0
//
// Updates run concurrently with the next forward on a GPU, ordered only by their needs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "support/jobs.hpp"
#include "support/simulated_gpu/missed_needs.hpp"
#include "support/training/gpu_jobs.hpp"
#include "trireme/data/batch_reader.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::train::simulated_updates_test {
namespace {

using schedule::Lane;

class DeviceUpdates : public test::StagedGpuJobs {
 protected:
  [[nodiscard]] config::RunConfig run(int steps) const {
    config::RunConfig config = test::odd_run(files_, steps);
    config.batch.global = 16;
    config.batch.micro = 4;
    return config;
  }
};

bool frees(const schedule::Op& op) { return std::holds_alternative<schedule::FreeGradient>(op); }
bool reads_behind_update(const schedule::Op& from, const schedule::Op& to) {
  return std::holds_alternative<schedule::Update>(from) && schedule::lane_of(to) != Lane::optimizer &&
         !std::holds_alternative<schedule::ClipNorm>(to);
}
const test::NeedKind kinds[] = {
    // If one rank gathers a block, its first reader follows free_gradient, on the same lane.
    {.name = "a block is read after its update", .is = reads_behind_update, .events_to = 2},
    {.name = "a block is gathered after its update",
     .is = [](const schedule::Op& from, const schedule::Op& to) { return reads_behind_update(from, to) && !frees(to); },
     .lanes_from = 2},
    // Several ranks gather the block first, after its update.
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
  const test::MissedNeeds missed{.config = run(3),
                                 .options = options_,
                                 .slow_lanes = {Lane::compute, Lane::optimizer},
                                 .is_slow_here = [](Lane) { return true; },
                                 // If only the compute stream is late, updates precede their readers anyway.
                                 .late_shows = mode != nullptr && std::string(mode) == "late"};
  missed.expect_all(kinds, world_);
}

TEST_F(DeviceUpdates, EndBeforeMastersAreReadBetweenSteps) {
  const auto masters = [&](bool rests) {
    Job job(run(2), world_, options_);
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
