// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/fp8.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::fp8_test {
namespace {

using testing::HasSubstr, testing::Not;

config::Model llama() {
  return {.vocab_size = 97,
          .hidden_size = 64,
          .intermediate_size = 96,
          .layers = 3,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 16};
}

config::Model mixture() {
  config::Model config = llama();
  config.architecture = "qwen2_moe";
  config.experts = 6;
  config.experts_per_token = 2;
  config.expert_size = 32;
  config.shared_size = 48;
  return config;
}

Model with(const config::Model& config, const Fp8Choice& choice, TensorPart part = {}) {
  part.fp8 = choice;
  return build(config, part);
}

std::string refusal(const config::Model& config, const Fp8Choice& choice, TensorPart part = {}) {
  try {
    const Model model = with(config, choice, std::move(part));
    check_fp8_skip(model, choice);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Names of the weights whose products are in fp8.
std::vector<std::string> chosen(const Model& model) {
  std::vector<std::string> names;
  for (const ComputeBlock& block : model.compute_blocks)
    for (const Stage& stage : block.stages)
      for (const ParamRef ref : stage.parameters)
        if (stage.fp8.of(model[ref].role) != Fp8::none) names.push_back(model[ref].name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& part) {
  return std::ranges::any_of(names, [&](const std::string& name) { return name.find(part) != std::string::npos; });
}

TEST(ChooseFp8, TakesTheProductsOfAttentionAndMlp) {
  EXPECT_TRUE(chosen(with(llama(), {})).empty());
  const std::vector<std::string> names = chosen(with(llama(), {.recipe = Fp8::rowwise}));
  EXPECT_EQ(names.size(), 3U * 7U);
  for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
    EXPECT_TRUE(has(names, part)) << part;
}

TEST(ChooseFp8, TakesExpertsButNoRouter) {
  const std::vector<std::string> names = chosen(with(mixture(), {.recipe = Fp8::rowwise}));
  EXPECT_EQ(names.size(), 3U * (4U + 3U * 6U + 3U));
  EXPECT_TRUE(has(names, "experts.5.down_proj"));
  EXPECT_TRUE(has(names, "shared_expert.gate_proj"));
  EXPECT_FALSE(has(names, "mlp.gate.weight"));
  EXPECT_FALSE(has(names, "shared_expert_gate"));
}

TEST(ChooseFp8, NeverTakesEmbeddingHeadAndRouter) {
  for (const Architecture& family : architectures())
    for (const NameRow& row : family.names)
      if (may_be_fp8(row.role)) {
        EXPECT_THAT(std::string(row.tensor), Not(HasSubstr("embed"))) << family.name;
        EXPECT_THAT(std::string(row.tensor), Not(HasSubstr("lm_head"))) << family.name;
        EXPECT_THAT(std::string(row.tensor), Not(HasSubstr("mlp.gate.weight"))) << family.name;
        EXPECT_THAT(std::string(row.tensor), Not(HasSubstr("norm"))) << family.name;
        EXPECT_THAT(std::string(row.tensor), Not(HasSubstr("bias"))) << family.name;
      }
}

TEST(ChooseFp8, SkipsWhatGlobsFit) {
  const std::vector<std::string> names =
      chosen(with(llama(), {.recipe = Fp8::mx, .skip = {"*.layers.2.*", "*down_proj*"}}));
  EXPECT_EQ(names.size(), 2U * 6U);
  EXPECT_FALSE(has(names, "layers.2."));
  EXPECT_FALSE(has(names, "down_proj"));
  EXPECT_EQ(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*q_proj*", "*k_proj*", "*v_proj*"}}), "");
}

TEST(ChooseFp8, MarksTheStagesOfEveryMesh) {
  const std::size_t all = chosen(with(llama(), {.recipe = Fp8::rowwise})).size();
  for (const TensorPart& part : {TensorPart{.ranks = 2, .sequence_parallel = true}, TensorPart{.rank = 1, .ranks = 2},
                                 TensorPart{.context = {.ranks = 2}},
                                 TensorPart{.context = {.ranks = 2, .method = config::ContextMethod::heads}}})
    EXPECT_EQ(chosen(with(llama(), {.recipe = Fp8::rowwise}, part)).size(), all);
  EXPECT_EQ(chosen(with(mixture(), {.recipe = Fp8::rowwise}, {.experts = {.ranks = 3}})).size(),
            chosen(with(mixture(), {.recipe = Fp8::rowwise})).size());
}

TEST(ChooseFp8, RefusesHalfAProduct) {
  EXPECT_THAT(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*v_proj*"}}),
              HasSubstr("skips model.layers.0.self_attn.v_proj.weight but not model.layers.0.self_attn.q_proj.weight"));
  EXPECT_THAT(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*gate_proj*"}}), HasSubstr("skip both or none"));
  EXPECT_THAT(refusal(mixture(), {.recipe = Fp8::rowwise, .skip = {"*experts.3.down_proj*"}}),
              HasSubstr("experts.3.down_proj.weight but not"));
}

TEST(ChooseFp8, RefusesSizesByTheNameOfTheWeight) {
  config::Model odd = llama();
  odd.intermediate_size = 100;
  EXPECT_THAT(
      refusal(odd, {.recipe = Fp8::rowwise}),
      HasSubstr("model.layers.0.mlp.gate_proj.weight is 100 x 64, but \"rowwise\" requires multiples of 16; set "
                "such sizes, or precision.fp8_skip = [\"*.gate_proj.weight\", \"*.up_proj.weight\"]"));
  EXPECT_THAT(refusal(odd, {.recipe = Fp8::rowwise}), HasSubstr("model.layers.0.mlp.down_proj.weight is 64 x 100"));
  EXPECT_EQ(refusal(odd, {.recipe = Fp8::rowwise, .skip = {"*.mlp.*"}}), "");
  config::Model narrow = llama();
  narrow.intermediate_size = 80;
  EXPECT_EQ(refusal(narrow, {.recipe = Fp8::rowwise}), "");
  EXPECT_THAT(refusal(narrow, {.recipe = Fp8::mx}), HasSubstr("requires multiples of 32"));
}

TEST(ChooseFp8, LooksAtWhatATensorRankHolds) {
  config::Model config = llama();
  config.intermediate_size = 80;
  EXPECT_EQ(refusal(config, {.recipe = Fp8::rowwise}), "");
  EXPECT_THAT(refusal(config, {.recipe = Fp8::rowwise}, {.ranks = 2}),
              HasSubstr("model.layers.0.mlp.gate_proj.weight is 40 x 64 on a tensor rank"));
}

TEST(CheckFp8Skip, RefusesGlobsWithoutAWeightAndNothingLeft) {
  EXPECT_THAT(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*q_porj*"}}),
              HasSubstr("\"*q_porj*\" fits no weight of attention, MLP or experts"));
  EXPECT_THAT(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*lm_head*"}}), HasSubstr("fits no weight"));
  EXPECT_THAT(refusal(llama(), {.recipe = Fp8::rowwise, .skip = {"*"}}), HasSubstr("skips every product"));
}

}  // namespace
}  // namespace trireme::model::fp8_test
