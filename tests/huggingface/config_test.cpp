// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "huggingface/directories.hpp"
#include "huggingface/refused_families.hpp"
#include "trireme/base/error.hpp"
#include "trireme/huggingface/hub.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface {
namespace {

/// Llama 3.2 1B as it was published, by transformers 4.45.
constexpr std::string_view transformers_4 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
  "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
  "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

/// The same saved again by transformers 5.
constexpr std::string_view transformers_5 = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
  "dtype": "bfloat16", "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": null,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_parameters": {"factor": 32.0, "high_freq_factor": 4.0,
  "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0, "rope_type": "llama3"},
  "tie_word_embeddings": true, "transformers_version": "5.23.0", "use_cache": true, "vocab_size": 128256})";

config::Model parsed(const std::string& more) { return parse_hf_config(config_text(false, more), "config.json").model; }

void expect_refusal(const std::string& more, const std::vector<std::string>& parts) {
  expect_parts(message_of<CheckpointError>([&] { (void)parsed(more); }), parts);
}

TEST(HfConfig, BothDialectsAreEqual) {
  for (const std::string_view text : {transformers_4, transformers_5}) {
    const HfConfig config = parse_hf_config(text, "config.json");
    EXPECT_EQ(config.model.vocab_size, 128256);
    EXPECT_EQ(config.model.hidden_size, 2048);
    EXPECT_EQ(config.model.intermediate_size, 8192);
    EXPECT_EQ(config.model.layers, 16);
    EXPECT_EQ(config.model.heads, 32);
    EXPECT_EQ(config.model.kv_heads, 8);
    EXPECT_EQ(config.model.head_dim, 64);
    EXPECT_EQ(config.model.norm_eps, 1e-5);
    EXPECT_EQ(config.model.rope_theta, 500000);
    ASSERT_TRUE(config.model.rope_scaling);
    EXPECT_EQ(config.model.rope_scaling->factor, 32);
    EXPECT_EQ(config.model.rope_scaling->original_max_position_embeddings, 8192);
    EXPECT_TRUE(config.model.tie_embeddings);
    EXPECT_EQ(config.max_position_embeddings, 131072);
    EXPECT_EQ(config.bos_token_id, 128000);
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{128001, 128008, 128009}));
  }
}

TEST(HfConfig, GivesTheReasonForARefusedFamilyAndTheNearestOne) {
  const auto refusal = [](const std::string& type) {
    return message_of<CheckpointError>([&] { (void)parse_hf_config(R"({"model_type": ")" + type + "\"}", "c"); });
  };
  expect_parts(refusal("deepseek_v32"), {"it has sparse latent attention; the nearest family is deepseek_v3; llama, "});
  expect_parts(refusal("mamba2"),
               {"model_type = \"mamba2\": it has state-space layers; the nearest family is llama; "});
  EXPECT_EQ(refusal("unheard_of").find("nearest"), std::string::npos);
  std::set<std::string> types;
  for (const model::Architecture& a : model::architectures()) types.emplace(a.model_type);
  for (const RefusedFamily& family : refused_families()) {
    EXPECT_FALSE(types.contains(std::string(family.model_type))) << family.model_type << " can be read";
    EXPECT_TRUE(types.contains(std::string(family.nearest))) << family.nearest;
  }
}

TEST(HubDownload, IsForNamesOfRepositories) {
  EXPECT_EQ(
      hub_download("meta-llama/Llama-3.1-8B"),
      "; if it is a repository of the Hugging Face Hub: hf download meta-llama/Llama-3.1-8B --local-dir Llama-3.1-8B");
  for (const char* other : {"tinny", "/data/model", "./a/b", "../model", "a/b/c", "models/", "a b/c", "a/b;c"})
    EXPECT_EQ(hub_download(other), "") << other;
}

TEST(HfConfig, UsesLlamaConfigsDefaults) {
  const HfConfig config =
      parse_hf_config(R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 12, "intermediate_size": 4,
    "num_hidden_layers": 1, "num_attention_heads": 3, "head_dim": null, "eos_token_id": 2, "rope_scaling": null})",
                      "config.json");
  EXPECT_EQ(config.model.kv_heads, 3);
  EXPECT_EQ(config.model.head_dim, 4);
  EXPECT_EQ(config.model.norm_eps, 1e-6);
  EXPECT_EQ(config.model.rope_theta, 10000);
  EXPECT_FALSE(config.model.rope_scaling);
  EXPECT_FALSE(config.model.tie_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<std::int64_t>{2});
}

TEST(HfConfig, ReadsEveryWayToWriteRope) {
  EXPECT_EQ(parsed(R"(, "rope_theta": 5000)").rope_theta, 5000);
  EXPECT_EQ(parsed(R"(, "rope_parameters": {"rope_theta": 5000, "rope_type": "default"})").rope_theta, 5000);
  EXPECT_EQ(parsed(R"(, "rope_theta": 5000, "rope_parameters": {"rope_type": "default"})").rope_theta, 5000);
  EXPECT_EQ(parsed(R"(, "rope_theta": 5000, "rope_parameters": {"rope_theta": 5000})").rope_theta, 5000);
  EXPECT_FALSE(parsed(R"(, "rope_scaling": {"type": "default", "factor": 2})").rope_scaling);
  EXPECT_TRUE(parsed(R"(, "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4,
    "original_max_position_embeddings": 8192})")
                  .rope_scaling);
}

TEST(HfConfig, RefusesDialectsThatDisagree) {
  expect_refusal(R"(, "rope_theta": 5000, "rope_parameters": {"rope_theta": 6000})",
                 {"5000", "6000", "transformers 4", "differ"});
  expect_refusal(R"(, "rope_parameters": {"rope_theta": 6000}, "rope_scaling": {"type": "llama3", "factor": 8.0,
    "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
                 {"rope_scaling", "rope_parameters", "differ"});
  expect_refusal(R"(, "rope_scaling": {"type": "default", "rope_type": "llama3"})",
                 {"rope_scaling.type = \"default\""});
}

TEST(HfConfig, RefusesRopeThatIsNotHonoured) {
  for (const std::string type : {"axial", "proportional", "su"}) {
    expect_refusal(R"(, "rope_scaling": {"type": ")" + type + R"(", "factor": 2})",
                   {"rope_scaling.type = \"" + type + "\"", "llama3"});
    expect_refusal(R"(, "rope_parameters": {"rope_type": ")" + type + R"("})",
                   {"rope_parameters.rope_type = \"" + type + "\""});
  }
  expect_refusal(R"(, "rope_parameters": {"partial_rotary_factor": 0.5})", {"partial_rotary_factor = 0.5"});
  expect_refusal(R"(, "rope_parameters": {"full_attention": {"rope_theta": 1}})", {"full_attention"});
  expect_refusal(R"(, "rope_scaling": {"rope_type": "llama3", "factor": -1, "low_freq_factor": 1})",
                 {"rope_scaling.factor = -1", "high_freq_factor is missing", "  max_position_embeddings is missing"});
  expect_refusal(R"(, "rope_scaling": 7)", {"rope_scaling is not a table"});
  expect_refusal(R"(, "rope_scaling": {"rope_type": "dynamic"})",
                 {"rope_scaling.factor is missing", "max_position_embeddings is missing"});
}

TEST(HfConfig, RefusesByNameWhatIsNotHonoured) {
  expect_refusal(R"(, "attention_bias": 1)", {"attention_bias = 1", "true or false"});
  expect_refusal(R"(, "sliding_window": 4096)", {"sliding_window = 4096"});
  expect_refusal(R"(, "attention_dropout": 0.1)", {"attention_dropout = 0.1"});
  expect_refusal(R"(, "use_qk_norm": true)", {"use_qk_norm = true"});
  expect_refusal(R"(, "attn_logit_softcapping": 50.0)", {"attn_logit_softcapping = 50.0"});
  expect_refusal(R"(, "final_logit_softcapping": 30.0)", {"final_logit_softcapping = 30.0"});
  expect_refusal(R"(, "quantization_config": {"bits": 4})", {"quantization_config", "quantized"});
  expect_refusal(R"(, "quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]})",
                 {"quantization_config", "fp8 in blocks of 128 x 128"});
  expect_refusal(R"(, "num_local_experts": 8)", {"num_local_experts = 8"});
  expect_refusal(R"(, "logits_scaling": 8.0)", {"logits_scaling = 8.0"});
  expect_refusal(R"(, "layer_types": ["full_attention", "sliding_attention"])", {"layer_types", "sliding_attention"});
}

TEST(HfConfig, AcceptsFeaturesThatAreSwitchedOff) {
  EXPECT_EQ(
      parsed(
          R"(, "attention_bias": false, "sliding_window": null, "attention_dropout": 0.0, "partial_rotary_factor": 1.0,
    "use_sliding_window": false, "final_logit_softcapping": null, "layer_types": ["full_attention"], "unknown": 7)")
          .vocab_size,
      11);
}

TEST(HfConfig, ListsKeysThatNothingFollowsAndThatSwitchSomethingOn) {
  const auto unread = [](const std::string& more) {
    return parse_hf_config(config_text(false, more), "config.json").unread_keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(unread(""), Keys{});
  EXPECT_EQ(unread(R"(, "residual_gate": "tanh", "clip_qkv": 8.0, "alibi": false, "experts": [], "k_scale": null)"),
            (Keys{"clip_qkv = 8.0", "residual_gate = \"tanh\""}));
  EXPECT_EQ(unread(R"(, "rope_scaling": {"rope_type": "linear", "factor": 2.0, "alpha": 4, "attention_factor": 2})"),
            (Keys{"rope_scaling.alpha = 4", "rope_scaling.attention_factor = 2"}));
  EXPECT_EQ(unread(R"(, "top_p": 0.9, "tokenizer_class": "X", "id2label": {"0": "A"}, "use_cache": true)"), Keys{});
  EXPECT_EQ(parse_hf_config(transformers_4, "config.json").unread_keys, Keys{});
  EXPECT_EQ(parse_hf_config(transformers_5, "config.json").unread_keys, Keys{});
}

TEST(HfConfig, RefusesAllMistakesAtOnce) {
  const auto refusal = [](std::string_view type) {
    return message_of<CheckpointError>([&] {
      (void)parse_hf_config(
          fmt::format(R"({{"architectures": ["Mamba2ForCausalLM"], "model_type": "{}", "hidden_act": "gelu",
                   "vocab_size": -1, "hidden_size": "big", "rms_norm_eps": 0, "tie_word_embeddings": 1}})",
                      type),
          "dir/config.json");
    });
  };
  expect_parts(refusal("llama"),
               {"dir/config.json", "Mamba2ForCausalLM", "hidden_act = \"gelu\"", "vocab_size = -1",
                "hidden_size = \"big\"", "intermediate_size is missing", "num_hidden_layers is missing",
                "num_attention_heads is missing", "rms_norm_eps = 0", "tie_word_embeddings = 1"});
  // Keys that llama has under other names are no mistake in another family's file.
  const std::string other = refusal("mamba2");
  expect_parts(other, {"dir/config.json", "model_type = \"mamba2\""});
  EXPECT_EQ(other.find("missing"), std::string::npos) << other;
}

TEST(HfConfig, RefusesSizesWhoseProductsOverflow) {
  expect_parts(message_of<CheckpointError>([] {
                 (void)parse_hf_config(R"({"model_type": "llama", "vocab_size": 11, "hidden_size": 4611686018427387904,
                   "intermediate_size": 9223372036854775807, "num_hidden_layers": 1, "num_attention_heads": 1})",
                                       "c");
               }),
               {"hidden_size = 4611686018427387904", "at most 2147483648", "intermediate_size"});
}

TEST(HfConfig, RefusesWhatIsNotAConfiguration) {
  expect_parts(message_of<CheckpointError>([] { (void)parse_hf_config("{\"a\"", "c"); }), {"c: is not valid JSON"});
  expect_parts(message_of<CheckpointError>([] { (void)parse_hf_config("[]", "c"); }), {"c: is not a table"});
  expect_parts(message_of<CheckpointError>([] { (void)parse_hf_config("{}", "c"); }), {"model_type is missing"});
}

}  // namespace
}  // namespace trireme::huggingface
