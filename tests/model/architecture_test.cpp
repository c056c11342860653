// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/architecture.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "model/message_of.hpp"
#include "model/small_architecture.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model::architecture_test {
namespace {

using M = config::Model;

TEST(Architectures, NameEveryTensorOnceAndNoneThatIsNotThere) {
  for (const Architecture& a : architectures()) {
    std::set<std::string_view> tensors;
    for (const NameRow& row : a.names) EXPECT_TRUE(tensors.insert(row.tensor).second) << a.name << ": " << row.tensor;
    for (const NameRow& row : a.names) EXPECT_FALSE(tensors.contains(row.joint)) << a.name << ": " << row.joint;
    config::Model everything = small(a);
    everything.attention_bias = a.expresses(&config::Model::attention_bias);
    everything.mlp_bias = a.expresses(&config::Model::mlp_bias);
    std::set<std::string> names;
    for (const ParameterBlock& block : build(everything).parameter_blocks)
      for (const Parameter& p : block.parameters)
        EXPECT_TRUE(names.insert(p.name).second) << a.name << ": " << p.name << " is there twice";
  }
}

TEST(Architectures, AnUnknownNameListsThoseThereAre) {
  const std::string message = message_of({.architecture = "lama"});
  for (const Architecture& a : architectures()) EXPECT_NE(message.find(a.name), std::string::npos) << message;
}

TEST(Architectures, WithExpertsHaveThemInTheOrderOfTheirProducts) {
  config::Model config = small(architecture("qwen3_moe"));
  config.expert_size = 10;
  config.dense_layers = 1;
  const Model model = build(config);
  EXPECT_EQ(model[Block{1}].stages[1].kind, StageKind::mlp);
  EXPECT_EQ(model[Block{2}].stages[1].kind, StageKind::moe);
  EXPECT_EQ(model[Block{2}].layer, 1);
  std::vector<std::string> names;
  for (const ParamRef ref : model[Block{2}].stages[1].parameters) names.push_back(model[ref].name);
  const std::string layer = "model.layers.1.";
  ASSERT_EQ(names.size(), 2U + 3 * 4);
  EXPECT_EQ(names[0], layer + "post_attention_layernorm.weight");
  EXPECT_EQ(names[1], layer + "mlp.gate.weight");
  EXPECT_EQ(names[2], layer + "mlp.experts.0.gate_proj.weight");
  EXPECT_EQ(names[3], layer + "mlp.experts.0.up_proj.weight");
  EXPECT_EQ(names[4], layer + "mlp.experts.1.gate_proj.weight");
  EXPECT_EQ(names[10], layer + "mlp.experts.0.down_proj.weight");
  const ParamRef down = model[Block{2}].stages[1].parameters.back();
  EXPECT_EQ(model[down].shape, (std::vector<std::int64_t>{24, 10}));
}

TEST(Architectures, RefuseExpertsThatCannotBeChosen) {
  config::Model config = small(architecture("mixtral"));
  config.experts = 0;
  EXPECT_NE(message_of(config).find("model.experts is not given"), std::string::npos);
  config.experts = 4;
  for (const std::int64_t k : {0, 5}) {
    config.experts_per_token = k;
    EXPECT_NE(message_of(config).find("it must be from 1 to model.experts = 4"), std::string::npos) << k;
  }
  config = small(architecture("qwen3_moe"));
  config.dense_layers = 3;
  EXPECT_NE(message_of(config).find("model.dense_layers = 3; it must be from 0 to model.layers = 2"),
            std::string::npos);
}

TEST(Architectures, WithRopeRequireAnEvenHeadDim) {
  for (const Architecture& a : architectures()) {
    config::Model config = small(a);
    config.hidden_size = 4 * 9;
    EXPECT_EQ(message_of(config).find("model.head_dim = 9 is odd; RoPE requires an even head_dim: use 8 or 10") !=
                  std::string::npos,
              !a.decoder.learned_positions && !a.decoder.latent)
        << a.name;
  }
}

TEST(Architectures, WithSharedExpertsHaveThemBeforeTheOthers) {
  config::Model config = small(architecture("glm4_moe"));
  config.expert_size = 10;
  config.shared_size = 20;
  const Model model = build(config);
  std::vector<std::string> names;
  for (const ParamRef ref : model[Block{1}].stages[1].parameters) names.push_back(model[ref].name);
  const std::string mlp = "model.layers.0.mlp.";
  ASSERT_EQ(names.size(), 6U + 3 * 4);
  EXPECT_EQ(names[2], mlp + "gate.e_score_correction_bias");
  EXPECT_EQ(names[3], mlp + "shared_experts.gate_proj.weight");
  EXPECT_EQ(names[6], mlp + "experts.0.gate_proj.weight");
  config.shared_size = 0;
  EXPECT_NE(message_of(config).find("model.shared_size is not given"), std::string::npos);
  config.shared_size = 25;
  EXPECT_NE(message_of(config).find("a whole number of shared experts of model.expert_size = 10: 20 or 30"),
            std::string::npos);
  config.shared_size = 10;
  config.router_groups = 3;
  EXPECT_NE(message_of(config).find("model.router_groups = 3; it must divide model.experts = 4: 2 or 4"),
            std::string::npos);
  config.router_groups = 4;
  EXPECT_NE(message_of(config).find("a group of 4 experts has 1, at least 2 score it; set at most 2"),
            std::string::npos);
  config.router_groups = 2;
  config.experts_per_token = 3;
  EXPECT_NE(message_of(config).find("1 groups of 2 experts have fewer than model.experts_per_token = 3; set 2"),
            std::string::npos);
}

TEST(Architectures, RefuseWhatTheirClassCannotExpress) {
  for (const Architecture& a : architectures()) {
    config::Model config = small(a);
    config.attention_bias = config.mlp_bias = true;
    config.no_rope_interval = 2;
    config.sliding_window = 3;
    config.layer_types = {config::full_attention, config::sliding_attention};
    config.rope_local_theta = 7;
    for (const auto member : {&M::attention_multiplier, &M::attn_logit_softcapping, &M::final_logit_softcapping,
                              &M::embedding_multiplier, &M::residual_multiplier, &M::logits_scaling})
      config.*member = 3;
    config.partial_rotary_factor = 0.5;
    config.query_pre_attn_scalar = 3;
    config.experts = config.experts_per_token = 2;
    config.expert_size = 3;
    config.dense_layers = 1;
    config.router_normalize = false;
    config.router_scale = 2;
    config.router_groups = config.router_groups_kept = 2;
    config.shared_size = 3;
    config.qk_norm = true;
    config.rope_interleave = false;
    if (!a.decoder.latent) config.q_rank = config.kv_rank = config.nope_dim = config.rope_dim = config.value_dim = 4;
    const std::string message = message_of(config);
    const auto refused = [&](std::string_view key) {
      return message.find(fmt::format("model.{} has no meaning for model.architecture = \"{}\"", key, a.name)) !=
             std::string::npos;
    };
    EXPECT_EQ(refused("attention_bias"), !a.expresses(&config::Model::attention_bias)) << a.name;
    EXPECT_EQ(
        refused("mlp_bias"),
        !std::set<std::string_view>({"llama", "smollm3", "granite", "helium", "seed_oss", "cwm"}).contains(a.name))
        << a.name;
    const bool granite = a.name == "granite";
    for (const char* key : {"attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"})
      EXPECT_EQ(refused(key), !granite) << a.name << ": " << key;
    const bool gemma23 = a.name == "gemma2" || a.name == "gemma3";
    EXPECT_EQ(refused("query_pre_attn_scalar"), !gemma23) << a.name;
    EXPECT_EQ(refused("final_logit_softcapping"), !gemma23) << a.name;
    EXPECT_EQ(refused("attn_logit_softcapping"), a.name != "gemma2") << a.name;
    EXPECT_EQ(refused("rope_local_theta"), a.name != "gemma3" && a.name != "olmo3") << a.name;
    EXPECT_EQ(refused("partial_rotary_factor"), !a.expresses(&M::partial_rotary_factor)) << a.name;
    for (const char* key : {"experts", "experts_per_token"})
      EXPECT_EQ(refused(key), !a.decoder.experts) << a.name << ": " << key;
    for (const char* key : {"q_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim", "rope_interleave"})
      EXPECT_EQ(refused(key), !a.decoder.latent) << a.name << ": " << key;
    const bool deepseek =
        a.name == "glm4_moe" || a.name == "dots1" || a.name == "deepseek_v3" || a.name == "glm4_moe_lite";
    const bool narrow = deepseek || a.name == "qwen2_moe" || a.name == "qwen3_moe";
    for (const char* key : {"expert_size", "dense_layers"}) EXPECT_EQ(refused(key), !narrow) << a.name << ": " << key;
    EXPECT_EQ(refused("router_normalize"), !narrow && a.name != "olmoe") << a.name;
    for (const char* key : {"router_scale", "router_groups", "router_groups_kept"})
      EXPECT_EQ(refused(key), !deepseek) << a.name << ": " << key;
    EXPECT_EQ(refused("shared_size"), !deepseek && a.name != "qwen2_moe") << a.name;
    EXPECT_EQ(refused("qk_norm"), a.name != "glm4_moe") << a.name;
    EXPECT_EQ(refused("no_rope_interval"), a.name != "smollm3") << a.name;
    EXPECT_EQ(refused("sliding_window"), a.windows == Windows::none) << a.name;
    EXPECT_EQ(refused("layer_types"), a.windows == Windows::none || a.windows == Windows::all) << a.name;
  }
  config::Model config = small(architecture("qwen3"));
  config.layer_types = {config::sliding_attention};
  EXPECT_NE(message_of(config).find("model.sliding_window is not given"), std::string::npos);
  config.sliding_window = 3;
  EXPECT_EQ(message_of(config), "");
  config.layer_types = {config::full_attention};
  EXPECT_NE(message_of(config).find("model.sliding_window = 3 has no effect"), std::string::npos);
}

TEST(Architectures, Exaone4sLayersWithoutRopeAlternateWithAWindow) {
  config::Model config = small(architecture("exaone4"));
  config.layers = 2;
  config.sliding_window = 3;
  config.layer_types = {config::full_attention, config::full_attention, config::sliding_attention};
  EXPECT_NE(message_of(config).find("set model.layers to at least 3"), std::string::npos) << "it would export another";
  config.layers = 3;
  EXPECT_EQ(message_of(config), "");
  config.architecture = "gemma3";
  config.layers = 2;
  EXPECT_EQ(message_of(config), "") << "its layers have RoPE with and without windows";
}

TEST(Architectures, WithWindowsCountWhatQueriesSee) {
  config::Model config = small(architecture("ministral"));
  const double plain = flops_per_token(build(config), 64);
  config.sliding_window = 16;
  config.layer_types = {config::full_attention, config::sliding_attention};
  EXPECT_EQ(plain - flops_per_token(build(config), 64), 12.0 * 24 * (64 - 16)) << "one of two layers, 24 wide";
  EXPECT_EQ(flops_per_token(build(config), 16), flops_per_token(build(small(architecture("ministral"))), 16));
  const Model part = build(config, {.rank = 1, .ranks = 2});
  EXPECT_EQ(part.compute_blocks[1].stages[1].window, 0);
  EXPECT_EQ(part.compute_blocks[2].stages[1].window, 16) << "of the branch that tensor parallelism cuts out";
}

TEST(Architectures, OfPhi3AndGlmShareTensorsOfFilesByRows) {
  const Model model = build(small(architecture("phi3")));
  std::map<std::string, std::vector<std::int64_t>> rows;  // before each, and of all
  for (const Parameter& p : model[ParamBlock{1}].parameters)
    if (!p.joint_tensor.empty()) rows[p.joint_tensor].insert(rows[p.joint_tensor].end(), {p.rows_before, p.joint_rows});
  EXPECT_EQ(rows, (std::map<std::string, std::vector<std::int64_t>>{
                      {"model.layers.0.self_attn.qkv_proj.weight", {0, 72, 24, 72, 48, 72}},
                      {"model.layers.0.mlp.gate_up_proj.weight", {0, 80, 40, 80}}}));
}

TEST(Architectures, TurnAWholeNumberOfPairs) {
  config::Model config = small(architecture("glm4"));
  config.partial_rotary_factor = 0.5;
  EXPECT_NE(message_of(config).find("RoPE would turn 3 of head_dim = 6 elements"), std::string::npos);
  config.partial_rotary_factor = 0.7;
  EXPECT_EQ(message_of(config), "");
  config = small(architecture("phi3"));
  config.rope_scaling =
      config::RopeScaling{.type = config::RopeType::longrope, .short_factor = {1, 2, 3}, .long_factor = {1, 2}};
  EXPECT_NE(message_of(config).find("long_factor has 2 numbers; RoPE turns 3 pairs"), std::string::npos);
  config.rope_scaling = config::RopeScaling{.type = config::RopeType::linear};
  EXPECT_NE(message_of(config).find("Phi3ForCausalLM of transformers takes rope_type = \"longrope\" only"),
            std::string::npos);
}

TEST(Architectures, WithoutAHeadDimRefuseOne) {
  config::Model config = small(architecture("stablelm"));
  config.head_dim = 8;
  EXPECT_NE(message_of(config).find("model.head_dim = 8"), std::string::npos);
  config.head_dim = 6;
  EXPECT_EQ(message_of(config), "");
}

TEST(Architectures, WithLatentAttentionHaveHeadsOfItsSizes) {
  config::Model config = small(architecture("youtu"));
  const Model model = build(config);
  EXPECT_EQ(model.sizes.head_dim, 10);
  EXPECT_EQ(model.sizes.value_dim(), 5);
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Parameter& p : model[ParamBlock{1}].parameters) shapes[p.name.substr(15)] = p.shape;
  EXPECT_EQ(shapes["self_attn.q_a_proj.weight"], (std::vector<std::int64_t>{12, 24}));
  EXPECT_EQ(shapes["self_attn.q_b_proj.weight"], (std::vector<std::int64_t>{40, 12}));
  EXPECT_EQ(shapes["self_attn.kv_a_proj_with_mqa.weight"], (std::vector<std::int64_t>{14, 24}));
  EXPECT_EQ(shapes["self_attn.kv_a_layernorm.weight"], std::vector<std::int64_t>{10});
  EXPECT_EQ(shapes["self_attn.kv_b_proj.weight"], (std::vector<std::int64_t>{44, 10}));
  EXPECT_EQ(shapes["self_attn.o_proj.weight"], (std::vector<std::int64_t>{24, 20}));
  EXPECT_EQ(flops_per_token(model, 8) - flops_per_token(model, 0), 2 * 6.0 * 4 * (10 + 5) * 8);
  config.q_rank = 0;
  EXPECT_TRUE(build(config).find("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(build(config).find("model.layers.0.self_attn.q_a_layernorm.weight"));
  config.rope_dim = 3;
  EXPECT_NE(message_of(config).find("model.rope_dim = 3 is odd"), std::string::npos);
  config.rope_dim = 4;
  config.head_dim = 6;
  EXPECT_NE(message_of(config).find("it is model.nope_dim + model.rope_dim = 10"), std::string::npos);
  config.head_dim = 10;
  config.kv_heads = 2;
  EXPECT_NE(message_of(config).find("every head has keys and values; remove it, or set 4"), std::string::npos);
  config.kv_heads = 4;
  config.value_dim = 0;
  EXPECT_NE(message_of(config).find("model.value_dim = 0"), std::string::npos);
  config.value_dim = 5;
  const double plain = *decoder_of(config).latent == *model.sizes.decoder.latent ? 0 : decoder_of(config).score_scale;
  EXPECT_DOUBLE_EQ(plain, 1 / std::sqrt(10.0));
  config.rope_scaling = config::RopeScaling{.type = config::RopeType::yarn, .factor = 40, .mscale_all_dim = 1};
  EXPECT_NEAR(decoder_of(config).score_scale / plain, 1.3688879 * 1.3688879, 1e-6) << "(1 + 0.1 ln 40)^2";
  EXPECT_NE(message_of({.architecture = "llama", .rope_scaling = config.rope_scaling}).find("mscale_all_dim"),
            std::string::npos);
}

TEST(Architectures, InTheirShortestFormHaveTheSameLayers) {
  config::Model config = small(architecture("gemma3"));
  config.sliding_window = 5;
  config.layers = 1;
  config.layer_types = {config::full_attention, config::sliding_attention};
  EXPECT_EQ(in_shortest_form(config).layer_types, std::vector<std::string>{});
  EXPECT_EQ(in_shortest_form(config).sliding_window, 0) << "the one layer has none";
  config.layers = 7;
  config.layer_types = {config::sliding_attention, config::sliding_attention, config::full_attention};
  EXPECT_EQ(in_shortest_form(config).layer_types, config.layer_types);
  const std::vector<std::string> cycle = config.layer_types;
  config.layer_types.insert(config.layer_types.end(), cycle.begin(), cycle.end());
  EXPECT_EQ(in_shortest_form(config).layer_types, cycle);
  config.layers = 2;
  EXPECT_EQ(in_shortest_form(config).layer_types, std::vector<std::string>{});
  EXPECT_EQ(in_shortest_form(config).sliding_window, 5) << "both layers have it";
  config.no_rope_interval = 3;
  EXPECT_EQ(in_shortest_form(config).no_rope_interval, 0);
}

}  // namespace
}  // namespace trireme::model::architecture_test
