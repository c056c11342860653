// SPDX-License-Identifier: Apache-2.0
//
// The sacred part: whatever the mesh, the policy and the lanes, a job computes what one plain program computes.
// ranks: 1 2 3 4
// timeout: 600
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/parity.hpp"

namespace trireme::train::parity_mpi_test {
namespace {

using test::Curve;

constexpr int steps = 20;

/// Trained models: changes to `odd_run`. Every rank count and policy trains on the same batches of 48 rows.
enum class Problem {
  odd,
  tied,
  ignored_targets,
  everything_else,
  gpt2,
  gpt2_untied,
  documents,
  z_loss,
  responses,
  packed
};

config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  const bool gpt2 = problem == Problem::gpt2 || problem == Problem::gpt2_untied;
  config::RunConfig config = gpt2 ? test::gpt2_run(files, steps) : test::odd_run(files, steps);
  switch (problem) {
    case Problem::odd:
    case Problem::gpt2: break;
    case Problem::gpt2_untied:
      config.model.tie_embeddings = false;
      config.data.ignore_targets = {test::TokenFiles::silent_token};
      break;
    case Problem::documents:
      config.data.document_end = 7;
      config.data.document_mask = true;
      break;
    case Problem::packed:
      config.data.train = files.sources_to_pack(true);
      config.data.packing = config::Packing::best_fit;
      config.data.document_mask = true;
      config.data.shuffle = true;
      config.optimizer.eps = 1e-6;  // as of responses
      break;
    case Problem::responses:
      config.data.train = files.sources_with_mask();
      // The first gradient of one embedding element (step 3, token 231, column 9) is a sum that cancels to about 1e-9,
      // its rounding error. AdamW's first update is lr * g / (|g| + eps): an error of 1e-9 moves it by up to lr with
      // eps = 1e-8, by 1e-3 lr with 1e-6. ACancelledGradientIsMagnifiedByASmallEps has the evidence.
      config.optimizer.eps = 1e-6;
      break;
    case Problem::z_loss:
      config.loss.z_loss = 1e-2;
      config.data.ignore_targets = {test::TokenFiles::silent_token};
      break;
    case Problem::tied: config.model.tie_embeddings = true; break;
    case Problem::ignored_targets:
      config.data.ignore_targets = {test::TokenFiles::silent_token, 20, 21, 22, 23};
      config.model.kv_heads = 6;
      break;
    case Problem::everything_else:
      config.model.rope_scaling = config::RopeScaling{
          .factor = 4, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 16};
      config.model.layers = 1;
      config.data.shuffle = true;
      config.data.skip_to = 31;
      config.lr = {.schedule = config::LrSchedule::wsd,
                   .warmup_steps = 2,
                   .end_step = 18,
                   .wsd_decay_steps = 6,
                   .min_ratio = 0.2};
      config.optimizer.clip_norm = 0;
      config.optimizer.no_decay = {"*embed*", "*v_proj*"};
      break;
  }
  return config;
}

struct Case {
  std::string name;
  Problem problem = Problem::odd;
  config::Sync sync;
  int accumulation = 4;
  int replicate = 1;
  bool lane_threads = true;
  comm::TransportChoice transport = comm::TransportChoice::shared_memory;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

constexpr auto deferred = config::SyncPolicy::deferred;
constexpr auto immediate_all = config::SyncPolicy::immediate_all;
constexpr auto mpi = comm::TransportChoice::mpi;
constexpr Bytes no_bytes{0};
constexpr Bytes unbounded{std::int64_t{1} << 40};

std::vector<Case> cases() {
  return {
      {.name = "Immediate"},
      {.name = "ImmediateOneMicrobatch", .accumulation = 1},
      {.name = "ImmediateKeptAfterForward", .sync = {.reshard_after_forward = 1}, .transport = mpi},
      {.name = "ImmediateKeptAfterBackward", .sync = {.reshard_after_backward = false}},
      {.name = "ImmediateWithoutPrefetch", .sync = {.prefetch_bytes = no_bytes}, .transport = mpi},
      {.name = "ImmediateUnboundedPrefetch", .sync = {.prefetch_bytes = unbounded}},
      {.name = "ImmediateOnOneThread", .lane_threads = false, .transport = mpi},
      {.name = "ImmediateReplicated", .replicate = 2},
      {.name = "ImmediateReshardedToPairs", .sync = {.reshard_after_forward = 2}},
      {.name = "ImmediateAll", .sync = {.policy = immediate_all}, .transport = mpi},
      {.name = "ImmediateAllReplicated", .sync = {.policy = immediate_all}, .replicate = 2},
      {.name = "ImmediateAllTiedReplicated",
       .problem = Problem::tied,
       .sync = {.policy = immediate_all},
       .replicate = 2,
       .transport = mpi},
      {.name = "ImmediateTied", .problem = Problem::tied},
      {.name = "ImmediateTiedKeptAfterBackward",
       .problem = Problem::tied,
       .sync = {.reshard_after_backward = false},
       .transport = mpi},
      {.name = "ImmediateIgnoredTargets", .problem = Problem::ignored_targets},
      {.name = "ImmediateEverythingElse", .problem = Problem::everything_else, .sync = {.prefetch_bytes = unbounded}},
      {.name = "Deferred", .sync = {.policy = deferred}, .transport = mpi},
      {.name = "DeferredOneMicrobatch", .sync = {.policy = deferred}, .accumulation = 1},
      {.name = "DeferredKeptAfterForward", .sync = {.policy = deferred, .reshard_after_forward = 1}},
      {.name = "DeferredKeptUntilUpdate",
       .sync = {.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false}},
      {.name = "DeferredWithoutPrefetch", .sync = {.policy = deferred, .prefetch_bytes = no_bytes}},
      {.name = "DeferredUnboundedPrefetch",
       .sync = {.policy = deferred, .prefetch_bytes = unbounded},
       .transport = mpi},
      {.name = "DeferredOnOneThread", .sync = {.policy = deferred}, .lane_threads = false},
      {.name = "DeferredReplicated", .sync = {.policy = deferred}, .replicate = 2, .transport = mpi},
      {.name = "DeferredTiedReshardedToPairs",
       .problem = Problem::tied,
       .sync = {.policy = deferred, .reshard_after_forward = 2, .reshard_after_backward = false}},
      {.name = "DeferredTied", .problem = Problem::tied, .sync = {.policy = deferred}},
      {.name = "DeferredTiedKeptUntilUpdate",
       .problem = Problem::tied,
       .sync = {.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false}},
      {.name = "DeferredIgnoredTargets", .problem = Problem::ignored_targets, .sync = {.policy = deferred}},
      {.name = "ImmediateDocuments", .problem = Problem::documents},
      {.name = "DeferredDocuments", .problem = Problem::documents, .sync = {.policy = deferred}, .transport = mpi},
      {.name = "ImmediateResponses", .problem = Problem::responses},
      {.name = "DeferredResponsesReplicated",
       .problem = Problem::responses,
       .sync = {.policy = deferred},
       .replicate = 2,
       .transport = mpi},
      {.name = "ImmediatePacked", .problem = Problem::packed},
      {.name = "DeferredPackedReplicated",
       .problem = Problem::packed,
       .sync = {.policy = deferred},
       .replicate = 2,
       .transport = mpi},
      {.name = "ImmediateZLoss", .problem = Problem::z_loss},
      {.name = "DeferredZLoss", .problem = Problem::z_loss, .sync = {.policy = deferred}, .transport = mpi},
      {.name = "ImmediateGpt2", .problem = Problem::gpt2},
      {.name = "ImmediateAllGpt2Replicated",
       .problem = Problem::gpt2_untied,
       .sync = {.policy = immediate_all},
       .replicate = 2},
      {.name = "DeferredGpt2KeptUntilUpdate",
       .problem = Problem::gpt2,
       .sync = {.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false},
       .transport = mpi},
      {.name = "DeferredGpt2", .problem = Problem::gpt2_untied, .sync = {.policy = deferred}, .lane_threads = false},
      {.name = "DeferredEverythingElse",
       .problem = Problem::everything_else,
       .sync = {.policy = deferred},
       .transport = mpi},
  };
}

class Parity : public test::ParityTest<Case> {};

config::RunConfig case_run(const Case& c, const test::TokenFiles& files, int ranks) {
  config::RunConfig config = problem_run(c.problem, files);
  config.sync = c.sync;
  config.mesh.replicate = c.replicate;
  config.batch.micro = config.batch.global / (ranks * c.accumulation);
  return config;
}

/// Replicas and groups divide the ranks; groups are smaller than the shard axis.
bool fits(const Case& c, int ranks) {
  const std::int64_t group = c.sync.reshard_after_forward;
  return ranks % c.replicate == 0 && (group <= 1 || (ranks / c.replicate % group == 0 && ranks / c.replicate > group));
}

JobOptions case_options(const Case& c) {
  return {.lane_threads = c.lane_threads, .transport = c.transport, .poison = true};
}

TEST_P(Parity, FollowsThePlainProgram) {
  const Case& c = GetParam();
  if (!fits(c, world_->size())) GTEST_SKIP() << "needs another number of ranks";
  const Curve& expected = plain(c.problem);
  expect_parity(test::train_job(case_run(c, *files_, world_->size()), *world_, case_options(c)).curve, expected);
}

INSTANTIATE_TEST_SUITE_P(, Parity, testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST_F(Parity, JobsOfDifferentPoliciesRunConcurrently) {
  if (world_->size() == 1) GTEST_SKIP() << "needs two ranks";
  const bool alone = world_->rank() == 0;
  const Case mine = alone ? Case{.problem = Problem::tied, .transport = mpi}
                          : Case{.problem = Problem::ignored_targets, .sync = {.policy = deferred}};
  const Curve tied = plain(Problem::tied);
  const Curve ignored = plain(Problem::ignored_targets);
  const mpi::Communicator group = world_->split(alone ? 0 : 1, world_->rank());
  expect_parity(test::train_job(case_run(mine, *files_, group.size()), group, case_options(mine)).curve,
                alone ? tied : ignored);
}

config::RunConfig one_step(const test::TokenFiles& files) {
  config::RunConfig config = problem_run(Problem::odd, files);
  config.train.steps = 1;
  config.model.rope_scaling = config::RopeScaling{
      .factor = 4, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position_embeddings = 16};
  return config;
}

/// Sensitivity of the test values: each of these mistakes is far outside the tolerance in the first loss already.
TEST_F(Parity, WouldSeeAWrongModel) {
  const config::RunConfig right = one_step(*files_);
  const Curve expected = test::plain_curve(right, *world_);
  const auto moved = [&](const std::function<void(config::Model&)>& mistake) {
    config::RunConfig wrong = right;
    wrong.batch.micro = right.batch.global / world_->size();
    mistake(wrong.model);
    return test::deviation(test::train_job(wrong, *world_).curve, expected).loss;
  };
  EXPECT_LT(moved([](config::Model&) {}), test::loss_tolerance);
  EXPECT_GT(moved([](config::Model& m) { m.rope_theta = 10000; }), 1e-4);
  EXPECT_GT(moved([](config::Model& m) { m.rope_scaling.reset(); }), 1e-4);
  EXPECT_GT(moved([](config::Model& m) { m.rope_scaling->factor = 8; }), 1e-4);
  EXPECT_GT(moved([](config::Model& m) { m.norm_eps = 1e-5; }), 1e-4);
}

/// With eps = 1e-8 a relative change of 2^-24 of every first weight moves the losses of the plain program itself by
/// more than the tolerance. A job stays within twice that: the difference is rounding, not a mistake.
TEST_F(Parity, ACancelledGradientIsMagnifiedByASmallEps) {
  config::RunConfig config = problem_run(Problem::responses, *files_);
  config.optimizer.eps = 1e-8;
  config.lr.end_step = config.train.steps;
  config.train.steps = 6;
  const Curve expected = test::plain_curve(config, *world_);
  const double rounded =
      test::deviation(test::plain_curve(config, *world_, {}, at::kFloat, std::ldexp(1.0, -24)), expected).loss;
  config.batch.micro = config.batch.global / world_->size();
  const double found = test::deviation(test::train_job(config, *world_).curve, expected).loss;
  EXPECT_GT(rounded, test::loss_tolerance);
  EXPECT_LE(found, 2 * rounded);
}

}  // namespace
}  // namespace trireme::train::parity_mpi_test
