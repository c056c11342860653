// SPDX-License-Identifier: Apache-2.0
//
// Mixtures of experts on meshes of other axes against the plain program, which computes one token after the other:
// tensor, context and pipeline ranks, with and without expert ranks that are folded out of them. Loads as without,
// bytes and activations as planned with the rows that were recorded.
//
// ranks: 2 4 6 8
//
// timeout: 1200
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "expert_runs.hpp"

namespace trireme::train::expert_axes_test {
namespace {

/// one_expert: all experts tie for every token, on every axis.
enum class Problem { mixtral, qwen, losses, glm, qwen2, one_expert };

config::RunConfig problem_run(Problem problem, const test::TokenFiles& files) {
  using Of = experts_test::Problem;
  const Of of = problem == Problem::mixtral  ? Of::mixtral
                : problem == Problem::qwen   ? Of::qwen
                : problem == Problem::losses ? Of::losses
                : problem == Problem::glm    ? Of::glm
                : problem == Problem::qwen2  ? Of::qwen2
                                             : Of::one_expert;
  config::RunConfig config = experts_test::problem_run(of, files);
  config.model.heads = 4;  // which 4 tensor ranks can share
  config.model.intermediate_size = 32;
  config.model.layers = 4;
  config.data.seq_len = 12;
  if (problem == Problem::one_expert) config.model.experts = 4;
  if (problem == Problem::mixtral || problem == Problem::losses || problem == Problem::qwen2) {
    config.data.shuffle = true;  // an order of samples in which no token has two experts that are almost equally good
    config.run.seed = 1;
  }
  return config;
}

store::ParameterInitializer values_of(Problem problem) {
  return experts_test::values_of(problem == Problem::one_expert ? experts_test::Problem::one_expert
                                                                : experts_test::Problem::qwen);
}

struct Case {
  std::string name;
  Problem problem = Problem::qwen;
  config::Mesh mesh{};  ///< shard: the ranks left
  config::Pipeline pipeline{};
  config::Sync sync{};
  config::Memory memory{};
  config::ContextMethod method = config::ContextMethod::gather;
  int accumulation = 2;
  bool lane_threads = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

constexpr auto block = config::Recompute::block, none = config::Recompute::none;

std::vector<Case> cases() {
  constexpr auto deferred = config::SyncPolicy::deferred, every_time = config::SyncPolicy::immediate_all;
  using enum config::PipelineKind;
  using enum Problem;
  const config::Sync kept{.policy = deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
  const config::Memory on_host{.recompute = block, .offload = config::Offload::parameters};
  return {
      {.name = "Tensor", .mesh = {.tensor = 2}},
      {.name = "TensorWithLosses", .problem = losses, .mesh = {.tensor = 2}, .memory = {.recompute = block}},
      {.name = "TensorAndTwo", .problem = losses, .mesh = {.tensor = 2, .expert = 2}, .lane_threads = false},
      {.name = "TensorAndTwoOfGlmOnHost", .problem = glm, .mesh = {.tensor = 2, .expert = 2}, .memory = on_host},
      {.name = "TensorAndFourOfMixtralReplicated",
       .problem = mixtral,
       .mesh = {.replicate = 2, .tensor = 2, .expert = 4},
       .sync = {.policy = every_time}},
      {.name = "TensorAndThreeOfQwen2",
       .problem = qwen2,
       .mesh = {.tensor = 2, .expert = 3},
       .memory = {.recompute = none}},
      {.name = "TensorOfFourAndTwo", .problem = glm, .mesh = {.tensor = 4, .expert = 2}, .sync = kept},
      {.name = "Context", .problem = losses, .mesh = {.context = 2}, .memory = {.recompute = block}},
      {.name = "ContextAndTwo", .problem = glm, .mesh = {.context = 2, .expert = 2}, .memory = {.recompute = none}},
      {.name = "ContextByHeadsAndTwo",
       .problem = losses,
       .mesh = {.context = 2, .expert = 2},
       .method = config::ContextMethod::heads,
       .lane_threads = false},
      {.name = "ContextOfThreeAndSix", .mesh = {.context = 3, .expert = 6}, .memory = {.recompute = block}},
      {.name = "ContextAndTensorAndFour",
       .problem = mixtral,
       .mesh = {.tensor = 2, .context = 2, .expert = 4},
       .memory = {.activation_offload = true, .activation_offload_min_bytes = Bytes{0}}},
      {.name = "ContextAndTensorWithLosses",
       .problem = losses,
       .mesh = {.tensor = 2, .context = 2, .expert = 2},
       .memory = on_host},
      {.name = "PipelineAndTwo",
       .problem = losses,
       .mesh = {.pipeline = 2, .expert = 2},
       .pipeline = {.schedule = one_f_one_b},
       .accumulation = 3},
      {.name = "PipelineAndTwoOfGlm",
       .problem = glm,
       .mesh = {.pipeline = 2, .expert = 2},
       .pipeline = {.schedule = interleaved},
       .sync = kept,
       .memory = {.recompute = block}},
      {.name = "PipelineAndTensor",
       .mesh = {.tensor = 2, .pipeline = 2},
       .pipeline = {.schedule = gpipe},
       .sync = {.policy = deferred}},
      {.name = "PipelineAndTensorAndTwo",
       .problem = losses,
       .mesh = {.tensor = 2, .pipeline = 2, .expert = 2},
       .pipeline = {.schedule = one_f_one_b},
       .memory = {.recompute = block}},
      {.name = "PipelineAndContextAndTwo",
       .problem = glm,
       .mesh = {.context = 2, .pipeline = 2, .expert = 2},
       .pipeline = {.schedule = one_f_one_b},
       .lane_threads = false},
      {.name = "SplitBackward",
       .problem = losses,
       .mesh = {.pipeline = 2},
       .pipeline = {.schedule = zb_h1},
       .accumulation = 4},
      {.name = "SplitBackwardOfGlmRecomputed",
       .problem = glm,
       .mesh = {.pipeline = 2},
       .pipeline = {.schedule = zbv},
       .memory = {.recompute = block},
       .accumulation = 4,
       .lane_threads = false},
      {.name = "SplitBackwardAndTwo",
       .problem = glm,
       .mesh = {.pipeline = 2, .expert = 2},
       .pipeline = {.schedule = zb_h1},
       .memory = {.recompute = none},
       .accumulation = 4},
      {.name = "SplitBackwardAndTwoOfQwen2",
       .problem = qwen2,
       .mesh = {.pipeline = 2, .expert = 2},
       .pipeline = {.schedule = dualpipev},
       .sync = kept,
       .accumulation = 4},
      {.name = "SplitBackwardAndTensorAndTwo",
       .problem = losses,
       .mesh = {.tensor = 2, .pipeline = 2, .expert = 2},
       .pipeline = {.schedule = zbv},
       .accumulation = 4},
      {.name = "AllTokensToOneOfTensorAndTwo",
       .problem = one_expert,
       .mesh = {.tensor = 2, .expert = 2},
       .memory = {.recompute = block}},
      {.name = "AllTokensToOneOfContextAndTwo", .problem = one_expert, .mesh = {.context = 2, .expert = 2}},
      {.name = "AllTokensToOneOfContextAndTensorAndFour",
       .problem = one_expert,
       .mesh = {.tensor = 2, .context = 2, .expert = 4},
       .memory = {.recompute = none}},
      {.name = "AllTokensToOneOfPipelineAndTwo",
       .problem = one_expert,
       .mesh = {.pipeline = 2, .expert = 2},
       .pipeline = {.schedule = zb_h1},
       .accumulation = 4},
      {.name = "AllOfMixtral",
       .problem = mixtral,
       .mesh = {.tensor = 2, .context = 2, .pipeline = 2, .expert = 4},
       .pipeline = {.schedule = one_f_one_b}},
  };
}

class ExpertAxes : public experts_test::ExpertRun<Case> {};

TEST_P(ExpertAxes, FollowThePlainProgramAndMoveWhatIsPlanned) {
  const Case& c = GetParam();
  const auto ranks = static_cast<std::int64_t>(world_->size());
  const std::int64_t others = c.mesh.replicate * c.mesh.tensor * c.mesh.context * c.mesh.pipeline;
  const std::int64_t fold = ranks / (c.mesh.replicate * c.mesh.pipeline),
                     dp = ranks / c.mesh.tensor / c.mesh.context / c.mesh.pipeline;
  if (ranks % others != 0 || fold % c.mesh.expert != 0) GTEST_SKIP() << "needs another number of ranks";
  config::RunConfig config = problem_run(c.problem, *files_);
  config.mesh = c.mesh;
  config.pipeline = c.pipeline;
  config.sync = c.sync;
  config.memory = c.memory;
  config.context.method = c.method;
  config.batch.micro = config.batch.global / (dp * c.accumulation);
  expect_parity_and_loads(config, c.problem, train(config, c.problem, c.lane_threads));
}

INSTANTIATE_TEST_SUITE_P(, ExpertAxes, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

}  // namespace
}  // namespace trireme::train::expert_axes_test
