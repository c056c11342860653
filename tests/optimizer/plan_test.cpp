// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/plan.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::optimizer {
namespace {

constexpr int decaying = 0, constant = 1;

OptimizerPlan plan(std::vector<std::string> no_decay = {"*norm*", "*.bias"}) {
  config::RunConfig config;
  config.optimizer.no_decay = std::move(no_decay);
  return OptimizerPlan(config);
}

model::Parameter parameter(const char* name, std::vector<std::int64_t> shape) {
  return model::Parameter{.name = name, .shape = std::move(shape)};
}

/// norm at [0, 100), q at [128, 256), up at [256, 306), bias at [320, 330); 330 elements padded to shards * 64.
model::ParameterBlock block() {
  return {.name = "b0",
          .parameters = {parameter("model.layers.0.input_layernorm.weight", {100}),
                         parameter("model.layers.0.q_proj.weight", {2, 64}),
                         parameter("model.layers.0.up_proj.weight", {5, 10}),
                         parameter("model.layers.0.o_proj.bias", {10})}};
}

model::Model model_of_block() {
  model::Model model;
  model.parameter_blocks = {block()};
  return model;
}

std::vector<UpdateRange> ranges(int shards, int rank) { return plan().ranges(block(), {block(), shards}, rank); }

TEST(OptimizerPlan, GroupsFollowTheGlobs) {
  const auto group = [](const char* name) { return plan().group_of(parameter(name, {1})); };
  EXPECT_EQ(group("model.layers.3.mlp.up_proj.weight"), decaying);
  EXPECT_EQ(group("model.embed_tokens.weight"), decaying);
  EXPECT_EQ(group("model.layers.3.input_layernorm.weight"), constant);
  EXPECT_EQ(group("model.norm.weight"), constant);
  EXPECT_EQ(group("model.layers.3.self_attn.q_proj.bias"), constant);
  EXPECT_EQ(plan({}).group_of(parameter("model.norm.weight", {1})), decaying);
}

TEST(OptimizerPlan, CorrectionBiasesOfRoutersDoNotDecay) {
  model::Parameter bias = parameter("model.layers.1.mlp.gate.e_score_correction_bias", {8});
  bias.role = model::Role::router_bias;
  EXPECT_EQ(plan({}).group_of(bias), constant);
}

TEST(OptimizerPlan, GroupsHaveTheRunFilesWeightDecayOrNone) {
  config::RunConfig config;
  config.optimizer.weight_decay = 0.25;
  const OptimizerPlan plan(config);
  EXPECT_EQ(plan.groups()[decaying].weight_decay, 0.25);
  EXPECT_EQ(plan.groups()[constant].weight_decay, 0);
}

TEST(OptimizerPlan, AParameterIsInTheFirstGroupThatItMatches) {
  config::RunConfig config;
  config.optimizer.weight_decay = 0.25;
  config.optimizer.no_decay = {"*norm*", "*.bias"};
  config.optimizer.groups = {{.names = {"*q_proj*", "*input_layernorm*"}, .lr = 2},
                             {.names = {"*.bias"}, .lr = 0.5, .weight_decay = 0.75},
                             {.names = {"*"}, .weight_decay = 0}};
  const OptimizerPlan plan(config);
  const auto group = [&](const char* name) {
    return plan.groups()[static_cast<std::size_t>(plan.group_of(parameter(name, {8})))];
  };
  const auto expect = [&](const char* name, double lr, double decay) {
    EXPECT_EQ(group(name).lr, lr) << name;
    EXPECT_EQ(group(name).weight_decay, decay) << name;
  };
  expect("model.layers.0.self_attn.q_proj.weight", 2, 0.25);
  expect("model.layers.0.self_attn.q_proj.bias", 2, 0);
  expect("model.layers.0.input_layernorm.weight", 2, 0);
  expect("model.layers.0.self_attn.k_proj.bias", 0.5, 0.75);
  expect("model.layers.0.self_attn.k_proj.weight", 1, 0);
  model::Parameter bias = parameter("model.layers.1.mlp.gate.e_score_correction.bias", {8});
  bias.role = model::Role::router_bias;
  EXPECT_EQ(plan.groups()[static_cast<std::size_t>(plan.group_of(bias))].weight_decay, 0);
}

TEST(OptimizerPlan, RangesOfOtherGroupsAreNotMerged) {
  config::RunConfig config;
  config.optimizer.no_decay = {"*norm*", "*.bias"};
  config.optimizer.groups = {{.names = {"*up_proj*"}, .lr = 0.5}};
  const std::vector<UpdateRange> expected{
      {{0, 100}, constant}, {{128, 256}, decaying}, {{256, 306}, 2 + decaying}, {{320, 330}, constant}};
  EXPECT_EQ(OptimizerPlan(config).ranges(block(), {block(), 1}, 0), expected);
}

TEST(OptimizerPlan, RangesCoverParametersAndLeaveGapsOut) {
  const std::vector<UpdateRange> expected{{{0, 100}, constant}, {{128, 306}, decaying}, {{320, 330}, constant}};
  EXPECT_EQ(ranges(1, 0), expected);
}

TEST(OptimizerPlan, RangesAreThoseOfTheShard) {
  const std::vector<UpdateRange> first{{{0, 100}, constant}, {{128, 192}, decaying}};
  const std::vector<UpdateRange> second{{{0, 114}, decaying}, {{128, 138}, constant}};
  EXPECT_EQ(ranges(2, 0), first);
  EXPECT_EQ(ranges(2, 1), second);
}

TEST(OptimizerPlan, RangesOfPaddingAreEmpty) { EXPECT_TRUE(ranges(7, 6).empty()); }

TEST(OptimizerPlan, AdamWKeepsTwoMomentsInFp32) {
  const std::vector<StateSpec> expected{{"first_moment", DType::fp32}, {"second_moment", DType::fp32}};
  const OptimizerPlan plan;
  EXPECT_EQ(std::vector(plan.states().begin(), plan.states().end()), expected);
  EXPECT_EQ(plan.state_bytes(block(), {block(), 1}).value, 384 * 8);
  EXPECT_EQ(plan.saved_bytes(model_of_block()).value, (100 + 128 + 50 + 10) * 12);
}

TEST(OptimizerPlan, MomentsInBf16TakeHalfTheMemoryAndNoLessOfCheckpoints) {
  config::RunConfig config;
  config.precision.moments = DType::bf16;
  const OptimizerPlan plan(config);
  EXPECT_TRUE(plan.rounds_states());
  EXPECT_FALSE(OptimizerPlan().rounds_states());
  EXPECT_EQ(plan.state_bytes(block(), {block(), 1}).value, 384 * 4);
  EXPECT_EQ(plan.saved_bytes(model_of_block()).value, (100 + 128 + 50 + 10) * 12);
}

TEST(OptimizerPlan, RangesOfRoundedStatesAreOfOneParameterAndHaveItsKey) {
  config::RunConfig config;
  config.precision.moments = DType::bf16;
  const auto ranges = OptimizerPlan(config).ranges(block(), {block(), 2}, 0);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[1].elements, (shard::Range{128, 192}));
  EXPECT_EQ(ranges[1].whole, (shard::Hyperslab{.length = 64}));
  const auto rest = OptimizerPlan(config).ranges(block(), {block(), 2}, 1);
  ASSERT_EQ(rest.size(), 3U) << "q, up and the bias: neighbours are not merged";
  EXPECT_EQ(rest[0].whole, (shard::Hyperslab{.first = 64, .length = 64}));
  EXPECT_EQ(rest[0].key, ranges[1].key) << "of one parameter";
  EXPECT_NE(rest[0].key, rest[1].key);
  config.run.seed = 5;
  EXPECT_NE(OptimizerPlan(config).ranges(block(), {block(), 2}, 1)[0].key, rest[0].key);
}

/// q and up are matrices that Muon updates.
model::ParameterBlock block_with_matrices() {
  model::ParameterBlock block = optimizer::block();
  block.parameters[0].role = model::Role::attention_norm;
  block.parameters[1].role = model::Role::q;
  block.parameters[2].role = model::Role::up;
  block.parameters[3].role = model::Role::o_bias;
  return block;
}

OptimizerPlan muon(std::vector<std::string> adamw = {}) {
  config::RunConfig config;
  config.optimizer.name = config::OptimizerName::muon;
  config.optimizer.no_decay = {"*norm*", "*.bias"};
  config.optimizer.adamw = std::move(adamw);
  return OptimizerPlan(config);
}

TEST(OptimizerPlan, MatricesOfMuonHaveNoSecondMomentAndNoRange) {
  const model::ParameterBlock block = block_with_matrices();
  const shard::BlockLayout layout(block, 1);
  const std::vector<UpdateRange> expected{{.elements = {0, 100}, .group = constant},
                                          {.elements = {320, 330}, .group = constant, .second_shift = 100 - 320}};
  EXPECT_EQ(muon().ranges(block, layout, 0), expected);
  EXPECT_EQ(muon().state_bytes(block, layout).value, (384 + 110) * 4);
  EXPECT_EQ(muon({"*up_proj*", "*q_proj*"}).ranges(block, layout, 0), plan().ranges(block, layout, 0))
      << "globs give matrices to AdamW";
  EXPECT_EQ(muon({"*"}).state_bytes(block, layout).value, 384 * 8);
}

TEST(OptimizerPlan, SecondMomentsOfAllShardsAreEquallyLongAndDoNotOverlap) {
  const model::ParameterBlock block = block_with_matrices();
  for (const int shards : {1, 2, 3, 7}) {
    const shard::BlockLayout layout(block, shards);
    for (int shard = 0; shard < shards; ++shard) {
      const StateLayout second = muon({"*up_proj*"}).state_layout(block, layout, shard, 1);
      EXPECT_EQ(second.elements, muon({"*up_proj*"}).state_layout(block, layout, 0, 1).elements);
      std::int64_t end = 0;
      for (const shard::Slice& slice : layout.slices(shard)) {
        if (slice.parameter == 1) continue;  // q
        EXPECT_EQ(second.place(slice.parameter, slice.offset), end) << "end to end";
        end += slice.elements.size();
      }
      EXPECT_LE(end, second.elements);
    }
  }
}

}  // namespace
}  // namespace trireme::optimizer
