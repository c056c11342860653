// SPDX-License-Identifier: Apache-2.0
//
// Mixtures of experts against the plain program, which computes one token after the other: meshes, tensors saved for
// backward on device and host, losses of routers. Loads of experts do not depend on the mesh.
//
// ranks: 1 2 3 4
#include <gtest/gtest.h>

#include <numeric>

#include "support/parity.hpp"
#include "support/training/mixtures.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::train::experts_parity_test {
namespace {

constexpr int steps = 10;

enum class Problem { mixtral, olmoe, qwen, losses, one_expert, glm, qwen2 };

config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  config::RunConfig config = test::odd_mixture(files, steps);
  config.model.experts = 5;
  switch (problem) {
    case Problem::mixtral:
      config.model.architecture = "mixtral";
      config.model.expert_size = 0;
      break;
    case Problem::olmoe:
      config.model.architecture = "olmoe";
      config.model.expert_size = 0;
      config.model.router_normalize = false;
      config.model.head_dim = 0;
      break;
    case Problem::qwen:
    case Problem::losses:
      config.model.dense_layers = 1;
      config.model.tie_embeddings = true;
      if (problem == Problem::losses) test::add_router_losses(config);
      break;
    case Problem::one_expert:
      config.model.architecture = "mixtral";
      config.model.expert_size = 0;
      config.model.experts = config.model.experts_per_token = 1;
      break;
    case Problem::glm:
      test::make_glm(config);
      config.model.head_dim = 12;
      config.model.partial_rotary_factor = 0.5;
      config.model.qk_norm = config.model.attention_bias = true;
      config.model.experts = 6;
      break;
    case Problem::qwen2:
      config.model.architecture = "qwen2_moe";
      config.model.shared_size = 37;
      config.model.router_normalize = false;
      break;
  }
  return config;
}

struct Case {
  std::string name;
  Problem problem = Problem::qwen;
  config::Mesh mesh{};
  config::Sync sync{};
  config::Memory memory{};
  int accumulation = 4;
  bool lane_threads = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

std::vector<Case> cases() {
  using enum config::Recompute;
  constexpr auto deferred = config::SyncPolicy::deferred;
  return {
      {.name = "Mixtral", .problem = Problem::mixtral},
      {.name = "MixtralReplicated",
       .problem = Problem::mixtral,
       .mesh = {.replicate = 2},
       .sync = {.policy = deferred}},
      {.name = "Olmoe", .problem = Problem::olmoe, .memory = {.recompute = none}},
      {.name = "QwenRecomputed", .memory = {.recompute = block}},
      {.name = "QwenRecomputedEverySecondOffloaded",
       .memory = {.recompute = block,
                  .recompute_every = 2,
                  .activation_offload = true,
                  .activation_offload_min_bytes = Bytes{0}}},
      {.name = "QwenOnHost", .memory = {.recompute = none, .offload = config::Offload::parameters}},
      {.name = "QwenInAPipeline", .mesh = {.pipeline = 2}, .memory = {.recompute = block}},
      {.name = "LossesInAPipeline", .problem = Problem::losses, .mesh = {.pipeline = 2}},
      {.name = "Losses", .problem = Problem::losses, .accumulation = 2, .lane_threads = false},
      {.name = "LossesRecomputed", .problem = Problem::losses, .memory = {.recompute = block}},
      {.name = "Glm", .problem = Problem::glm, .memory = {.recompute = none}},
      {.name = "GlmReplicatedAndRecomputed",
       .problem = Problem::glm,
       .mesh = {.replicate = 2},
       .sync = {.policy = deferred},
       .memory = {.recompute = block}},
      {.name = "GlmInAPipeline", .problem = Problem::glm, .mesh = {.pipeline = 2}, .lane_threads = false},
      {.name = "GlmOnHost",
       .problem = Problem::glm,
       .memory = {.activation_offload = true,
                  .activation_offload_min_bytes = Bytes{0},
                  .offload = config::Offload::parameters}},
      {.name = "Qwen2", .problem = Problem::qwen2},
      {.name = "Qwen2RecomputedInAPipeline",
       .problem = Problem::qwen2,
       .mesh = {.pipeline = 2},
       .memory = {.recompute = block}},
      {.name = "OneExpert", .problem = Problem::one_expert, .sync = {.policy = deferred}},
  };
}

class ExpertsParity : public test::ParityTest<Case> {
 protected:
  static void SetUpTestSuite() {
    device::install_allocator();
    test::ParityTest<Case>::SetUpTestSuite();
  }

  /// The tokens of the first step, by layer and expert, of every case of a problem.
  static inline std::map<Problem, std::vector<std::vector<std::int64_t>>> loads_;
};

TEST_P(ExpertsParity, FollowsThePlainProgramAndCountsEveryToken) {
  const Case& c = GetParam();
  const auto ranks = static_cast<std::int64_t>(world_->size());
  if (ranks % (c.mesh.replicate * c.mesh.pipeline) != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.mesh = c.mesh;
  config.sync = c.sync;
  config.memory = c.memory;
  config.batch.micro = config.batch.global / (ranks / c.mesh.pipeline * c.accumulation);
  const test::Outcome outcome = test::train_job(config, *world_, {.lane_threads = c.lane_threads, .poison = true});
  expect_parity(outcome.curve, plain(c.problem));
  for (const auto& layers : outcome.expert_tokens) {
    ASSERT_EQ(layers.size(), 3U);
    for (std::size_t layer = 0; layer < 3; ++layer) {
      const auto& tokens = layers[layer];
      const bool dense = static_cast<std::int64_t>(layer) < config.model.dense_layers;
      EXPECT_EQ(tokens.size(), dense ? 0U : static_cast<std::size_t>(config.model.experts));
      EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}),
                dense ? 0 : config.batch.global * config.data.seq_len * config.model.experts_per_token);
    }
  }
  const auto [first, is_new] = loads_.emplace(c.problem, outcome.expert_tokens.front());
  EXPECT_EQ(outcome.expert_tokens.front(), first->second) << "as on every mesh";
}

INSTANTIATE_TEST_SUITE_P(, ExpertsParity, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::train::experts_parity_test
