// SPDX-License-Identifier: Apache-2.0
// config.json of Gemma, OLMo 3, Granite, Phi-3 and GLM-4: as published, and half right.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "huggingface/config_text.hpp"
#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface::gemma_to_glm_test {
namespace {

using Types = std::vector<std::string>;
constexpr const char* full = config::full_attention;
constexpr const char* sliding = config::sliding_attention;

config::Model read(const std::string& type, const std::string& more) {
  return parse_hf_config(fmt::format(R"({{"model_type": "{}", "vocab_size": 11, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2{}}})",
                                     type, more),
                         "config.json")
      .model;
}

void expect_refusal(const std::string& type, const std::string& more, const std::vector<std::string>& parts) {
  expect_parts(message_of<CheckpointError>([&] { (void)read(type, more); }), parts);
}

/// A published config.json, whose every key is read or known, and the elements of its model.
config::Model published(const std::string& text, std::int64_t elements) {
  const HfConfig read = parse_hf_config(text, "config.json");
  EXPECT_EQ(read.unread_keys, Types{});
  EXPECT_EQ(model::build(read.model).elements(), elements);
  return read.model;
}

TEST(GemmaToGlm, Gemma2CapsScoresAndLogits) {
  const config::Model model = published(R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216,
    "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26,
    "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "use_cache": true, "vocab_size": 256000})",
                                        2614341888);
  EXPECT_EQ(model.layer_types, (Types{sliding, full}));
  EXPECT_TRUE(model.tie_embeddings);
  EXPECT_EQ(read("gemma2", R"(, "attn_logit_softcapping": null)").attn_logit_softcapping, 0);
  EXPECT_EQ(read("gemma2", "").attn_logit_softcapping, 50);
  EXPECT_EQ(read("gemma2", "").final_logit_softcapping, 30);
  expect_refusal("gemma2", R"(, "final_logit_softcapping": 0.0)", {"final_logit_softcapping = 0.0"});
  expect_refusal("gemma2", R"(, "use_bidirectional_attention": true)", {"use_bidirectional_attention = true"});
  expect_refusal("gemma2", R"(, "hidden_activation": "relu")", {"hidden_activation = \"relu\"", "gelu_pytorch_tanh"});
  expect_refusal("gemma2", R"(, "query_pre_attn_scalar": 0.5)", {"query_pre_attn_scalar = 0.5"});
}

TEST(GemmaToGlm, Gemma3TurnsLayersWithAWindowByAnotherBase) {
  const std::string text =
      R"({"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1,
    "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 262144})";
  const config::Model model = published(text, 999885952);
  EXPECT_EQ(model.layer_types, (Types{sliding, sliding, sliding, sliding, sliding, full}));
  EXPECT_EQ(model.rope_local_theta, 10000);
  const std::string written = hf_config_text(model::build(model), {});
  EXPECT_EQ(hf_config_text(model::build(parse_hf_config(written, "config.json").model), {}), written);
  const config::Model absent = read("gemma3_text", "");
  EXPECT_EQ(absent.rope_theta, 1e6);
  EXPECT_EQ(absent.rope_local_theta, 1e4);
  EXPECT_EQ(read("gemma3_text", R"(, "sliding_window_pattern": 2)").layer_types, (Types{sliding, full}));
  EXPECT_EQ(read("gemma3_text", R"(, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8,
    "rope_theta": 7}, "sliding_attention": {"rope_type": "default", "rope_theta": 9}})")
                .rope_scaling->factor,
            8);
  expect_refusal("gemma3_text", R"(, "attn_logit_softcapping": 50)", {"attn_logit_softcapping = 50"});
  expect_refusal("gemma3_text", R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7})",
                 {"rope_parameters = ", "a table for full_attention and one for sliding_attention"});
  expect_refusal("gemma3_text",
                 R"(, "rope_parameters": {"full_attention": {}, "sliding_attention": {"rope_type": "linear",
    "factor": 2}})",
                 {"its scaling is not supported"});
  expect_refusal("gemma3_text", R"(, "rope_local_base_freq": 5, "rope_parameters": {"full_attention": {},
    "sliding_attention": {"rope_theta": 7}})",
                 {"differ"});
}

TEST(GemmaToGlm, Olmo3LeavesTheRopeOfWindowsAlone) {
  const config::Model model =
      read("olmo3", R"(, "rope_theta": 500000, "sliding_window": 5, "rope_scaling": {"rope_type":
    "yarn", "factor": 8, "original_max_position_embeddings": 16})");
  EXPECT_EQ(model.layer_types, (Types{sliding, sliding, sliding, full}));
  EXPECT_EQ(model.rope_local_theta, 5e5);
  EXPECT_EQ(model.rope_scaling->factor, 8);
  expect_refusal("olmo3", R"(, "rope_theta": 10000)", {"rope_theta = 10000", "write rope_parameters"});
}

TEST(GemmaToGlm, GraniteHasFourMultipliers) {
  const config::Model model = read("granite", R"(, "attention_multiplier": 0.015625, "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22, "logits_scaling": 8.0)");
  EXPECT_EQ(model::build(model).sizes.decoder.score_scale, 0.015625);
  EXPECT_EQ(model.logits_scaling, 8);
  EXPECT_EQ(read("granite", "").attention_multiplier, 1) << "not head_dim^-1/2";
  expect_refusal("granite", R"(, "residual_multiplier": -1)", {"residual_multiplier = -1"});
  expect_refusal("llama", R"(, "residual_multiplier": 0.22)", {"residual_multiplier = 0.22"});
}

TEST(GemmaToGlm, Phi3HasAFactorForEachFrequency) {
  const std::string factors = R"("short_factor": [1], "long_factor": [2]})";
  const config::Model model =
      read("phi3", R"(, "max_position_embeddings": 64, "original_max_position_embeddings": 16, "rope_scaling": {"type":
    "longrope", )" + factors);
  EXPECT_EQ(model.rope_scaling->factor, 4);
  EXPECT_EQ(model.rope_scaling->original_max_position_embeddings, 16);
  EXPECT_EQ(read("phi3", "").sliding_window, 0);
  published(R"({"architectures": ["Phi3ForCausalLM"], "attention_dropout": 0.0, "auto_map": {"AutoConfig": "x"},
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "original_max_position_embeddings":
    4096, "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
    "sliding_window": 2047, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "attention_bias": false, "vocab_size": 32064})",
            3821079552);
  for (const char* type : {"su", "yarn"})  // as Phi-3's first files have it
    EXPECT_EQ(read("phi3", fmt::format(R"(, "max_position_embeddings": 64, "original_max_position_embeddings": 16,
    "rope_scaling": {{"type": "{}", )",
                                       type) +
                               factors)
                  .rope_scaling,
              model.rope_scaling);
  expect_refusal("phi3", R"(, "rope_scaling": {"type": "yarn", "factor": 2})",
                 {"rope_scaling.short_factor is missing"});
  expect_refusal("phi3", R"(, "rope_scaling": {"type": "linear", "factor": 2})", {"rope_scaling.type = \"linear\""});
  expect_refusal("llama", R"(, "rope_scaling": {"type": "su", )" + factors, {"rope_scaling.type = \"su\""});
  expect_refusal("phi3", R"(, "rope_scaling": {"type": "longrope", "short_factor": [1]})",
                 {"rope_scaling.long_factor is missing", "max_position_embeddings is missing"});
  expect_refusal("phi3", R"(, "rope_scaling": {"type": "longrope", "short_factor": [0], "long_factor": "x"})",
                 {"rope_scaling.short_factor = [0]", "rope_scaling.long_factor = \"x\""});
}

TEST(GemmaToGlm, Glm4TurnsHalfOfAHead) {
  EXPECT_EQ(read("glm4", "").partial_rotary_factor, 0.5);
  EXPECT_EQ(
      read("glm4", R"(, "rope_parameters": {"partial_rotary_factor": 0.25, "rope_theta": 3})").partial_rotary_factor,
      0.25);
  const model::Model model = model::build(read("glm4", R"(, "head_dim": 4)"));
  EXPECT_TRUE(model.find("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(model.find("model.layers.0.self_attn.o_proj.bias")) << "attention_bias is of q, k and v";
  expect_refusal("glm4", R"(, "partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.25})",
                 {"partial_rotary_factor = 0.5", "the same as in rope_parameters"});
  published(R"({"architectures": ["Glm4ForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 13696, "max_position_embeddings": 32768, "model_type": "glm4",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "pad_token_id": 151329,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 151552})",
            9400279040);
}

}  // namespace
}  // namespace trireme::huggingface::gemma_to_glm_test
