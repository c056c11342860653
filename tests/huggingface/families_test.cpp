// SPDX-License-Identifier: Apache-2.0
// config.json of each family, as published or as transformers reads it: every key that changes the model, and what is
// half right.
#include <gtest/gtest.h>

#include <cmath>

#include "huggingface/config_text.hpp"
#include "huggingface/small_configs.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface::families_test {
namespace {

using M = config::Model;
using Types = std::vector<std::string>;
constexpr const char* full = config::full_attention;
constexpr const char* sliding = config::sliding_attention;

TEST(Families, EveryOneIsWrittenAsItIsRead) {
  for (const model::Architecture& a : model::architectures()) {
    if (a.name == "gpt2") continue;  // other keys: gpt2_test
    const std::string scaling = a.original_length_absent > 0
                                    ? R"({"type": "longrope", "short_factor": [1, 1.5],
      "long_factor": [2, 3], "factor": 3, "attention_factor": 1.5})"
                                    : fmt::format(R"({{"rope_type": "yarn", "factor": 3,
      "original_max_position_embeddings": 16, "beta_fast": 20, "beta_slow": 2, "truncate": false,
      "attention_factor": 1.5{}}})",
                                                  a.scales_queries ? R"(, "llama_4_scaling_beta": 0.2)" : "");
    const std::string theta = a.decoder.local_rope ? "500000" : "300.5";
    const char* experts = a.name == "dots1"
                              ? R"("n_routed_experts": 16, "n_shared_experts": 1, "num_experts_per_tok": 3, )"
                          : a.decoder.latent ? R"("qk_rope_head_dim": 4, )"
                                             : "";
    config::Model model =
        read(std::string(a.model_type), fmt::format(R"(, {}"head_dim": {}, "partial_rotary_factor": 1,
      "rope_theta": {}, "rope_scaling": {})",
                                                    experts, a.heads_span_hidden ? 2 : 4, theta, scaling));
    if (a.expresses(&config::Model::attention_bias)) model.attention_bias = true;
    if (a.expresses(&config::Model::mlp_bias)) model.mlp_bias = true;
    if (a.decoder.local_rope) model.rope_local_theta = 77;
    for (const auto member : {&M::attention_multiplier, &M::attn_logit_softcapping, &M::final_logit_softcapping,
                              &M::embedding_multiplier, &M::residual_multiplier, &M::logits_scaling})
      if (a.expresses(member)) model.*member = 3.5;
    if (a.expresses(&M::query_pre_attn_scalar)) model.query_pre_attn_scalar = 10;
    if (a.skips_rope) model.no_rope_interval = 2;
    if (a.has_dense_layers()) model.dense_layers = 2;
    if (a.expresses(&M::router_scale)) model.router_scale = 2.5;
    if (a.expresses(&M::router_groups)) model.router_groups = 8, model.router_groups_kept = 5;
    if (a.expresses(&M::qk_norm)) model.qk_norm = true;
    if (a.expresses(&M::shared_size)) model.shared_size = 2 * model.expert_size;
    if (a.windows != model::Windows::none) model.sliding_window = 7;
    if (a.windows == model::Windows::layers || a.windows == model::Windows::switched)
      model.layer_types = {full, sliding};
    const std::string written = hf_config_text(model::build(model), {});
    EXPECT_EQ(parse_hf_config(written, "config.json").unread_keys, Types{}) << a.name;
    const config::Model again = parse_hf_config(written, "config.json").model;
    EXPECT_EQ(hf_config_text(model::build(again), {}), written) << a.name;
    EXPECT_EQ(model::build(again).sizes, model::build(model).sizes) << a.name;
    EXPECT_EQ(again.no_rope_interval, model.no_rope_interval) << a.name;
    EXPECT_EQ(again.dense_layers, model.dense_layers) << a.name;
    EXPECT_EQ(again.sliding_window, model.sliding_window) << a.name;
    EXPECT_EQ(again.layer_types, model.layer_types) << a.name;
    EXPECT_EQ(again.rope_scaling, model.rope_scaling) << a.name;
    if (a.original_length_absent > 0 || a.scales_queries) continue;
    for (const config::RopeScaling& scaling :
         {config::RopeScaling{.type = config::RopeType::linear, .factor = 2.5},
          config::RopeScaling{
              .type = config::RopeType::dynamic, .factor = 2.5, .original_max_position_embeddings = 77}}) {
      if (scaling.type == config::RopeType::dynamic && a.heads_span_hidden) continue;  // two elements of a head turn
      model.rope_scaling = scaling;
      EXPECT_EQ(parse_hf_config(hf_config_text(model::build(model), {}), "c").model.rope_scaling, scaling) << a.name;
    }
  }
}

/// Lengths and factors that transformers 5.24 computes for the same files.
TEST(Families, TheOriginalLengthIsOfTheTopLevelTheTableOrTheLongest) {
  struct Case {
    std::string type, keys, beside;
    std::int64_t length;
    double factor;
  };
  const std::string lists = R"(, "short_factor": [1], "long_factor": [2])";
  const std::string within = R"(, "original_max_position_embeddings": 64)";
  const std::string beside = R"("original_max_position_embeddings": 32, )";
  const std::string four = R"(, "factor": 4)";
  const std::string bands = R"(, "low_freq_factor": 1, "high_freq_factor": 4)";
  for (const auto& [type, keys, other, length, factor] :
       std::vector<Case>{{"yarn", four, "", 128, 4},
                         {"yarn", four + within, "", 64, 4},
                         {"yarn", four, beside, 32, 4},
                         {"yarn", four + within, beside, 32, 4},
                         {"yarn", R"(, "factor": null)" + within, "", 64, 2},
                         {"yarn", R"(, "factor": null)", beside, 32, 4},
                         {"llama3", four + bands, "", 128, 4},
                         {"llama3", four + bands + within, "", 64, 4},
                         {"llama3", four + bands, beside, 32, 4},
                         {"llama3", four + bands + within, beside, 32, 4},
                         {"longrope", four + lists, "", 128, 4},
                         {"longrope", lists, "", 128, 1},
                         {"longrope", lists + within, "", 64, 2},
                         {"longrope", lists, beside, 32, 4},
                         {"longrope", R"(, "factor": 8)" + lists, beside, 32, 8}})
    for (const char* name : {"rope_scaling", "rope_parameters"}) {
      const std::string text =
          fmt::format(R"(, "max_position_embeddings": 128, {}"{}": {{"rope_type": "{}"{}, "rope_theta": 10000}})",
                      other, name, type, keys);
      const config::Model model = read("llama", text);
      ASSERT_TRUE(model.rope_scaling) << text;
      EXPECT_EQ(model.rope_scaling->original_max_position_embeddings, length) << text;
      EXPECT_EQ(model.rope_scaling->factor, factor) << text;
      const std::string written = hf_config_text(model::build(model), {.max_position_embeddings = 128});
      EXPECT_EQ(parse_hf_config(written, "c").model.rope_scaling, model.rope_scaling) << written;
    }
  // Tables by type of layer ignore the top level.
  const config::Model model =
      read("olmo3", ", \"max_position_embeddings\": 128, " + beside +
                        R"("rope_theta": 500000, "rope_scaling": {"type": "yarn", "factor": 4})");
  EXPECT_EQ(model.rope_scaling->original_max_position_embeddings, 128);
}

TEST(Families, Qwen2HasBiasesOfQueriesKeysAndValues) {
  // Qwen2.5 7B as it was published.
  const config::Model model = parse_hf_config(R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584,
    "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
    "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
    "vocab_size": 152064})",
                                              "config.json")
                                  .model;
  EXPECT_EQ(model.sliding_window, 0);
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model::build(model).elements(), 7615616512);
}

TEST(Families, Ministral3ScalesItsQueriesByTheirPosition) {
  // The text part of Ministral 3 8B as it was published.
  const HfConfig read = parse_hf_config(R"({"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 262144,
    "model_type": "ministral3", "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0,
    "llama_4_scaling_beta": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
    "rope_theta": 1000000.0, "rope_type": "yarn", "type": "yarn"}, "sliding_window": null,
    "tie_word_embeddings": false, "use_cache": true, "vocab_size": 131072})",
                                        "config.json");
  EXPECT_EQ(read.unread_keys, Types{});
  EXPECT_EQ(read.model.sliding_window, 0);
  EXPECT_EQ(read.model.rope_theta, 1e6);
  EXPECT_EQ(read.model.rope_scaling, (config::RopeScaling{.type = config::RopeType::yarn,
                                                          .factor = 16,
                                                          .original_max_position_embeddings = 16384,
                                                          .attention_factor = 1,
                                                          .llama_4_scaling_beta = 0.1}));
}

TEST(Families, YarnTakesItsFactorOfAttentionFromMscale) {
  const auto factor = [](const std::string& more) {
    return read("qwen2", R"(, "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 9)" +
                             more + "}")
        .rope_scaling->attention_factor;
  };
  EXPECT_EQ(factor(""), 0);
  EXPECT_EQ(factor(R"(, "mscale": 0.7)"), 0) << "of its own it has no effect in transformers";
  EXPECT_EQ(factor(R"(, "mscale": 0.7, "mscale_all_dim": 0)"), 0);
  EXPECT_DOUBLE_EQ(factor(R"(, "mscale": 0.7, "mscale_all_dim": 1.1)"),
                   (0.07 * std::log(40) + 1) / (0.11 * std::log(40) + 1));
  EXPECT_EQ(factor(R"(, "mscale": 0.7, "mscale_all_dim": 1.1, "attention_factor": 2.5)"), 2.5);
}

TEST(Families, Qwen3HasNormsOfQueriesAndKeys) {
  // Qwen3 0.6B as it was published.
  const std::string text = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
    "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})";
  EXPECT_EQ(model::build(parse_hf_config(text, "config.json").model).elements(), 596049920);
  EXPECT_EQ(parse_hf_config(text, "config.json").unread_keys, Types{});
  EXPECT_EQ(read("qwen3", "").head_dim, 128);
}

TEST(Families, MistralsAbsentWindowIsNotItsNullOne) {
  EXPECT_EQ(read("mistral", "").sliding_window, 4096);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": null)").sliding_window, 0);
  EXPECT_EQ(read("mistral", R"(, "sliding_window": 7)").sliding_window, 7);
  expect_refusal("mistral", R"(, "sliding_window": 0)", {"sliding_window = 0"});
  expect_refusal("mistral", R"(, "layer_types": ["full_attention"])", {"layer_types", "ignores it"});
}

TEST(Families, LayersWithAWindowAreAPattern) {
  const config::Model model = read("ministral", R"(, "sliding_window": 5, "layer_types": ["full_attention",
    "sliding_attention", "full_attention", "sliding_attention"])");
  EXPECT_EQ(model.layer_types, (Types{full, sliding}));
  EXPECT_EQ(model::window_of(model, 2), 0);
  EXPECT_EQ(model::window_of(model, 3), 5);
  EXPECT_TRUE(read("ministral", R"(, "sliding_window": 5)").layer_types.empty()) << "all of them";
  const config::Model qwen =
      read("qwen2", R"(, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3)");
  EXPECT_EQ(qwen.layer_types, (Types{full, full, full, sliding}));
  EXPECT_EQ(qwen.sliding_window, 9);
  EXPECT_EQ(read("qwen3", R"(, "use_sliding_window": true)").sliding_window, 0) << "from layer 28 on";
  EXPECT_EQ(read("qwen3", R"(, "use_sliding_window": true, "max_window_layers": 0)").sliding_window, 4096);
  EXPECT_EQ(read("qwen2", R"(, "sliding_window": 9, "max_window_layers": 0)").sliding_window, 0) << "switched off";
}

TEST(Families, SmolLM3LeavesRopeOutOfEveryNthLayer) {
  EXPECT_EQ(read("smollm3", "").no_rope_interval, 4);
  EXPECT_EQ(read("smollm3", "").rope_theta, 2e6);
  EXPECT_TRUE(read("smollm3", "").tie_embeddings);
  EXPECT_EQ(read("smollm3", R"(, "no_rope_layers": [1, 0, 1, 0])").no_rope_interval, 2);
  EXPECT_EQ(read("smollm3", R"(, "no_rope_layers": [1, 1, 1, 1])").no_rope_interval, 0);
  EXPECT_EQ(read("smollm3", R"(, "no_rope_layer_interval": 3)").no_rope_interval, 3);
  const std::string both = text_of("smollm3", R"(, "no_rope_layers": [1, 0, 1, 0], "no_rope_layer_interval": 2)");
  EXPECT_EQ(parse_hf_config(both, "config.json").unread_keys, Types{});
  expect_refusal("smollm3", R"(, "no_rope_layers": [0, 1, 1, 1])", {"no_rope_layers = [0,1,1,1]", "every n-th layer"});
  expect_refusal("smollm3", R"(, "no_rope_layers": [1, 0])", {"no_rope_layers", "4 numbers"});
  expect_refusal("smollm3", R"(, "no_rope_layers": "all")", {"no_rope_layers"});
  expect_refusal("smollm3", R"(, "use_sliding_window": true)", {"use_sliding_window = true"});
}

TEST(Families, Exaone4TurnsWhatHasAWindow) {
  const config::Model hybrid = read("exaone4", R"(, "sliding_window": 5, "sliding_window_pattern": "LLLG",
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])");
  EXPECT_EQ(hybrid.sliding_window, 5);
  EXPECT_EQ(hybrid.layer_types, (Types{sliding, full}));
  for (std::int64_t layer = 0; layer < 4; ++layer) EXPECT_EQ(model::rotates(hybrid, layer), layer % 2 == 0);
  const config::Model plain = read("exaone4", R"(, "sliding_window": null)");
  EXPECT_EQ(plain.sliding_window, 0);
  for (std::int64_t layer = 0; layer < 4; ++layer) EXPECT_TRUE(model::rotates(plain, layer));
  expect_refusal("exaone4", R"(, "sliding_window": 5, "layer_types": ["full_attention", "full_attention",
      "full_attention", "full_attention"])",
                 {"sliding_window", "a model without RoPE"});
}

TEST(Families, CwmHasItsOwnAbsentKeys) {
  expect_refusal("cwm", "", {"rope_parameters", "CwmForCausalLM stretches RoPE"});
  const config::Model model = read("cwm", R"(, "rope_scaling": {"rope_type": "default", "rope_theta": 7})");
  EXPECT_EQ(model.sliding_window, 8192);
  EXPECT_EQ(model.layer_types, (Types{full, sliding, sliding, sliding}));
  config::Model full_only = model;
  full_only.sliding_window = 0, full_only.layer_types = {};
  const std::string written = hf_config_text(model::build(full_only), {});
  EXPECT_NE(written.find("\"sliding_window\": 8192"), std::string::npos) << "its class fails without";
  EXPECT_EQ(parse_hf_config(written, "config.json").model.sliding_window, 0);
}

TEST(Families, SeedOssHasBiasesOfQueriesKeysAndValues) {
  EXPECT_TRUE(read("seed_oss", "").attention_bias);
  EXPECT_FALSE(model::decoder_of(read("seed_oss", R"(, "attention_dropout": 0.1, "residual_dropout": 0.1)")).o_bias);
  expect_refusal("seed_oss", R"(, "attention_out_bias": true)", {"attention_out_bias = true", "a bias of o"});
}

TEST(Families, Olmo2NormsWhatBranchesWrite) {
  // OLMo 2 7B as it was published.
  const std::string text = R"({"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pad_token_id": 100277, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false, "torch_dtype": "float32",
    "use_cache": false, "vocab_size": 100352})";
  const model::Model model = model::build(parse_hf_config(text, "config.json").model);
  EXPECT_EQ(model.elements(), 7298617344);
  EXPECT_TRUE(model.find("model.layers.31.post_feedforward_layernorm.weight"));
  EXPECT_FALSE(model.find("model.layers.0.input_layernorm.weight"));
  EXPECT_EQ(read("olmo2", "").norm_eps, 1e-5);
}

TEST(Families, AnotherModelIsRefusedWithTheKeysThatNoneHas) {
  expect_refusal(
      "falcon_h1", R"(, "mamba_d_conv": 4, "ssm_multipliers": [1], "use_cache": true)",
      {"model_type = \"falcon_h1\"", "olmo2", "No family has its keys \"mamba_d_conv\", \"ssm_multipliers\""});
}

TEST(Families, HalfRightFilesAreRefusedByKey) {
  expect_refusal("qwen2",
                 R"(, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"])",
                 {"layer_types", "no sliding_window"});
  expect_refusal("qwen2", R"(, "use_sliding_window": true, "layer_types": ["full_attention"])",
                 {"layer_types", "each of 4 layers"});
  expect_refusal("ministral",
                 R"(, "layer_types": ["chunked_attention", "full_attention", "full_attention", "full_attention"])",
                 {"layer_types", "chunked_attention"});
  expect_refusal("qwen3", R"(, "use_sliding_window": 1)", {"use_sliding_window = 1"});
  expect_refusal("qwen3", R"(, "attention_bias": "yes")", {"attention_bias = \"yes\""});
  expect_refusal("qwen3", R"(, "num_experts": 8)", {"num_experts = 8"});
  expect_refusal("qwen2", R"(, "rope_scaling": {"type": "yarn", "factor": 4})", {"max_position_embeddings is missing"});
  expect_refusal("qwen2", R"(, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 9,
    "mscale": -1, "mscale_all_dim": "x"})",
                 {"rope_scaling.mscale = -1", "rope_scaling.mscale_all_dim = \"x\""});
  expect_refusal("qwen2", R"(, "rope_scaling": {"type": "yarn", "factor": 1e300, "original_max_position_embeddings": 9,
    "mscale": 1e308, "mscale_all_dim": 1e-308})",
                 {"rope_scaling.mscale = 1e+308"});
  const std::string beta = R"("llama_4_scaling_beta": 0.1)";
  expect_refusal("ministral3", R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, )" + beta + "}",
                 {"rope_parameters.rope_type = \"default\"", "yarn"});
  expect_refusal("ministral3", R"(, "rope_parameters": {"type": "yarn", "factor": 16})",
                 {"llama_4_scaling_beta is missing", "max_position_embeddings is missing"});
  expect_refusal("ministral3", "", {"rope_parameters", "Ministral3ForCausalLM stretches RoPE"});
  expect_refusal("qwen2", R"(, "rope_scaling": {"type": "linear"})", {"rope_scaling.factor is missing"});
  expect_refusal("llama", R"(, "sliding_window": 9)", {"sliding_window = 9"});
  expect_parts(message_of<CheckpointError>([] {
                 (void)parse_hf_config(R"({"model_type": "mistral", "vocab_size": 11, "hidden_size": 8,
                   "intermediate_size": 12, "num_hidden_layers": 4, "num_attention_heads": 4})",
                                       "c");
               }),
               {"num_key_value_heads is missing"});
}

}  // namespace
}  // namespace trireme::huggingface::families_test

// Fault, exports: RoPE tables without an original length; Phi-3's `su` -> as transformers 5.24; overridden values are
//   listed
