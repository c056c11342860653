// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/experts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::experts_test {
namespace {

using testing::HasSubstr;

config::Model mixture() {
  config::Model config;
  config.architecture = "qwen3_moe";
  config.vocab_size = 257;
  config.hidden_size = 72;
  config.intermediate_size = 100;
  config.layers = 3;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 12;
  config.experts = 6;
  config.experts_per_token = 2;
  config.expert_size = 22;
  config.dense_layers = 1;
  config.tie_embeddings = true;
  return config;
}

std::string refusal(const config::Model& config, int ranks) {
  try {
    (void)build(config, TensorPart{.experts = {.ranks = ranks}});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(DivideExperts, PutsThemIntoSeparateBlocksBehindTheirLayers) {
  const Model whole = build(mixture());
  const Model model = build(mixture(), TensorPart{.experts = {.rank = 1, .ranks = 3}});
  std::vector<std::string> names;
  for (const ParameterBlock& block : model.parameter_blocks) names.push_back(block.name);
  EXPECT_THAT(names, testing::ElementsAre("embedding", "b0", "b1", "b1.experts", "b2", "b2.experts", "head"));
  EXPECT_EQ(model[ParamBlock{3}].parts, 3);
  EXPECT_EQ(model[ParamBlock{2}].parts, 1);
  EXPECT_EQ(model.elements(), whole.elements());
  const ComputeBlock& layer = model[Block{2}];
  EXPECT_EQ(layer.reads, (std::vector{ParamBlock{2}, ParamBlock{3}}));
  ASSERT_EQ(layer.stages.size(), 4U);
  EXPECT_EQ(layer.stages[1].kind, StageKind::route);
  EXPECT_EQ(layer.stages[2].enter, Exchange::dispatch);
  EXPECT_EQ(layer.stages[2].leave, Exchange::combine);
  EXPECT_EQ(layer.stages[3].kind, StageKind::merge);
  EXPECT_TRUE(layer.stages[3].parameters.empty());
  EXPECT_TRUE(recomputes(layer));
  // The tied head still reads the embedding, and the head's own block is the last one.
  EXPECT_EQ(model[Block{4}].reads, (std::vector{ParamBlock{6}, ParamBlock{0}}));
  for (const ComputeBlock& block : model.compute_blocks)
    for (const Stage& stage : block.stages) {
      ASSERT_LE(stage.parameters.size(), 18U);
      for (const ParamRef& ref : stage.parameters)
        EXPECT_EQ(is_expert(model[ref].role), stage.kind == StageKind::experts) << model[ref].name;
    }
  for (int b = 0; b < model.blocks(); ++b)
    EXPECT_EQ(product_elements(model, Block{b}), product_elements(whole, Block{b}));
}

TEST(DivideExperts, OrdersParametersByThePartsThatRanksHave) {
  const Model model = build(mixture(), TensorPart{.experts = {.ranks = 3}});
  const auto& parameters = model[ParamBlock{3}].parameters;
  ASSERT_EQ(parameters.size(), 18U);
  const auto name = [](int expert, const char* of) {
    return "model.layers.1.mlp.experts." + std::to_string(expert) + "." + of + "_proj.weight";
  };
  for (int part = 0; part < 3; ++part) {
    const auto first = static_cast<std::size_t>(6 * part);
    EXPECT_EQ(parameters[first].name, name(2 * part, "gate"));
    EXPECT_EQ(parameters[first + 1].name, name(2 * part, "up"));
    EXPECT_EQ(parameters[first + 2].name, name(2 * part + 1, "gate"));
    EXPECT_EQ(parameters[first + 4].name, name(2 * part, "down"));
    EXPECT_EQ(parameters[first + 5].name, name(2 * part + 1, "down"));
  }
}

TEST(DivideExperts, PutsThemIntoSeparateBlocksWithTensorRanks) {
  const Model whole = build(mixture());
  for (const int ranks : {1, 2}) {
    const Model model =
        build(mixture(), TensorPart{.rank = 1, .ranks = 2, .sequence_parallel = true, .experts = {.ranks = ranks}});
    const ParameterBlock &layer = model[ParamBlock{2}], &experts = model[ParamBlock{3}];
    EXPECT_EQ(experts.name, "b1.experts");
    EXPECT_TRUE(experts.of_experts);
    EXPECT_EQ(experts.parts, ranks);
    for (const Parameter& parameter : experts.parameters)
      EXPECT_FALSE(parameter.partition) << "a tensor never cuts one";
    for (const Parameter& parameter : layer.parameters) EXPECT_TRUE(parameter.partition) << parameter.name;
    const ParamRef router = *model.find("model.layers.1.mlp.gate.weight");
    EXPECT_TRUE(model[router].partition->sum_gradient) << "ranks have seen other tokens";
    EXPECT_EQ(model.elements(), whole.elements());
    EXPECT_EQ(model[Block{2}].reads, (std::vector{ParamBlock{2}, ParamBlock{3}}));
    const StageKind last = model[Block{2}].stages.back().kind;
    EXPECT_EQ(last, ranks == 1 ? StageKind::moe : StageKind::merge);
    for (const Stage& stage : model[Block{2}].stages)
      if (stage.kind == StageKind::moe) {
        ASSERT_EQ(stage.parameters.size(), 20U);
        EXPECT_EQ(stage.parameters[1].block, ParamBlock{2});
        EXPECT_EQ(stage.parameters[2], (ParamRef{ParamBlock{3}, 0}));
      }
  }
}

TEST(DivideExperts, SumsLoadsOfSequencesThatAreDividedWhereALossReadsThem) {
  const auto sums = [](int tensor, int context, bool needed) {
    return sums_loads(build(mixture(), TensorPart{.ranks = tensor,
                                                  .sequence_parallel = tensor > 1,
                                                  .context = {.ranks = context},
                                                  .experts = {.ranks = 2, .needs_loads = needed}}));
  };
  EXPECT_FALSE(sums(1, 1, true));
  EXPECT_TRUE(sums(2, 1, true));
  EXPECT_TRUE(sums(1, 2, true));
  EXPECT_FALSE(sums(2, 2, false));
}

TEST(DivideExperts, LeavesTheModelOfOneRankAsItIs) {
  const Model model = build(mixture(), TensorPart{});
  EXPECT_EQ(model.param_blocks(), build(mixture()).param_blocks());
  EXPECT_EQ(model[Block{2}].stages[1].kind, StageKind::moe);
}

TEST(DivideExperts, RefusesRanksThatDoNotDivideThem) {
  EXPECT_THAT(refusal(mixture(), 4), HasSubstr("mesh.expert = 4: it does not divide model.experts = 6; set 3 or 6"));
  EXPECT_THAT(refusal(mixture(), 12), HasSubstr("set 6"));
  config::Model dense = mixture();
  dense.architecture = "qwen3";
  dense.experts = dense.experts_per_token = dense.expert_size = dense.dense_layers = 0;
  EXPECT_THAT(refusal(dense, 2), HasSubstr("has no experts; set mesh.expert = 1"));
}

}  // namespace
}  // namespace trireme::model::experts_test
