// SPDX-License-Identifier: Apache-2.0
// config.json of each family with experts, as published or as transformers reads it.
#include <gtest/gtest.h>

#include "huggingface/small_configs.hpp"
#include "trireme/model/model.hpp"

namespace trireme::huggingface::expert_families_test {
namespace {

using Types = std::vector<std::string>;

TEST(Families, Glm4MoeHasTheExpertsOfDeepSeek) {
  // GLM-4.5-Air as it was published.
  const HfConfig config = parse_hf_config(R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true,
    "attention_dropout": 0.0, "pad_token_id": 151329, "eos_token_id": [151329, 151336, 151338], "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 4096, "partial_rotary_factor": 0.5, "initializer_range": 0.02,
    "intermediate_size": 10944, "max_position_embeddings": 131072, "model_type": "glm4_moe",
    "moe_intermediate_size": 1408, "norm_topk_prob": true, "num_attention_heads": 96, "n_group": 1, "topk_group": 1,
    "n_routed_experts": 128, "n_shared_experts": 1, "routed_scaling_factor": 1.0, "num_experts_per_tok": 8,
    "first_k_dense_replace": 1, "num_hidden_layers": 46, "num_key_value_heads": 8, "num_nextn_predict_layers": 1,
    "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "use_qk_norm": false, "vocab_size": 151552})",
                                          "config.json");
  EXPECT_EQ(config.unread_keys, Types{"num_nextn_predict_layers = 1"}) << "its layer is left aside";
  const model::Model model = model::build(config.model);
  const model::Experts& experts = *model.sizes.decoder.experts;
  EXPECT_EQ(experts.scores, model::RouterScores::sigmoid);
  EXPECT_TRUE(experts.choice_bias);
  EXPECT_EQ(experts.shared_size, 1408);
  EXPECT_EQ(experts.dense_layers, 1);
  EXPECT_EQ(model.sizes.decoder.qk_norm, model::QkNorm::none);
  EXPECT_TRUE(model.sizes.decoder.qkv_bias);
  EXPECT_FALSE(model.sizes.decoder.o_bias);
  EXPECT_NEAR(static_cast<double>(model.elements()), 106.9e9, 0.1e9) << "106 billion, as published";
  EXPECT_EQ(read("glm4_moe", R"(, "first_k_dense_replace": 0, "n_shared_experts": 3)").dense_layers, 0);
  EXPECT_EQ(read("glm4_moe", R"(, "n_shared_experts": 3)").shared_size, 3 * 1408);
  expect_refusal("dots1", "", {"n_routed_experts", "n_shared_experts", "num_experts_per_tok"});
  expect_refusal("qwen2_moe", R"(, "use_sliding_window": true)", {"layer_types"});
  expect_refusal("qwen2_moe", R"(, "qkv_bias": false)", {"qkv_bias"});
}

/// Moonlight 16B A3B as it was published.
constexpr const char* moonlight = R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "aux_loss_alpha": 0.001, "bos_token_id": 163584, "eos_token_id": 163585, "ep_size": 1, "first_k_dense_replace": 1,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11264,
    "kv_lora_rank": 512, "max_position_embeddings": 8192, "model_type": "deepseek_v3", "moe_intermediate_size": 1408,
    "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": true,
    "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16,
    "num_nextn_predict_layers": 0, "pretraining_tp": 1, "q_lora_rank": null, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_theta": 50000.0, "routed_scaling_factor": 2.446,
    "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1,
    "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 163840})";

TEST(Families, DeepSeekV3HasLatentAttention) {
  const HfConfig config = parse_hf_config(moonlight, "config.json");
  const model::Model model = model::build(config.model);
  EXPECT_EQ(*model.sizes.decoder.latent,
            (model::Latent{.q_rank = 0, .kv_rank = 512, .nope = 128, .rope = 64, .value = 128}));
  EXPECT_TRUE(model.sizes.decoder.adjacent_pairs);
  EXPECT_NEAR(static_cast<double>(model.elements()), 15.96e9, 0.01e9) << "16 billion, as published";
  EXPECT_NEAR(model::flops_per_token(model, 0) / 6, 2.24e9 + 163840 * 2048, 0.5e9) << "3 billion active parameters";
  // Absent keys are as in DeepSeek-V3: 671 billion parameters.
  const std::string v3 = R"({"model_type": "kimi_k2", "vocab_size": 129280, "hidden_size": 7168,
    "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
    "head_dim": 64, "qk_head_dim": 192, "max_position_embeddings": 163840, "rope_scaling": {"beta_fast": 32,
    "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
    "type": "yarn"}})";
  const config::Model whole = parse_hf_config(v3, "config.json").model;
  EXPECT_NEAR(static_cast<double>(model::build(whole).elements()), 671.03e9, 0.01e9);
  EXPECT_EQ(whole.rope_scaling->attention_factor, 1);
  EXPECT_EQ(whole.rope_scaling->mscale_all_dim, 1);
  EXPECT_EQ(whole.architecture, "deepseek_v3") << "files of Kimi K2 have another model_type";
  EXPECT_EQ(read("glm4_moe_lite", "").dense_layers, 1);
  EXPECT_EQ(read("glm4_moe_lite", R"(, "mlp_layer_types": ["dense", "dense", "sparse", "sparse"])").dense_layers, 2);
  expect_refusal("glm4_moe_lite", R"(, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"])",
                 {"mlp_layer_types", "for the first layers"});
  expect_refusal("glm4_moe_lite", R"(, "first_k_dense_replace": 3)", {"first_k_dense_replace = 3", "1, the dense"});
  EXPECT_EQ(read("youtu", R"(, "q_lora_rank": null)").q_rank, 0);
  EXPECT_EQ(read("youtu", "").q_rank, 1536);
  EXPECT_EQ(read("youtu", "").head_dim, 192);
  EXPECT_TRUE(read("youtu", "").tie_embeddings);
  const std::string grouped = R"({"model_type": "youtu", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2})";
  expect_parts(message_of<CheckpointError>([&] { (void)parse_hf_config(grouped, "config.json"); }),
               {"num_key_value_heads = 2", "4: as many as num_attention_heads"});
  expect_refusal("youtu", R"(, "head_dim": 128)", {"head_dim = 128", "64: qk_rope_head_dim"});
  expect_refusal("youtu", R"(, "attention_bias": true)", {"attention_bias = true", "biases"});
  expect_refusal("deepseek_v3", R"(, "scoring_func": "softmax")", {"scoring_func", "\"sigmoid\""});
  expect_refusal("deepseek_v3", R"(, "topk_method": "greedy")", {"topk_method", "\"noaux_tc\""});
  expect_refusal("deepseek_v3", R"(, "moe_layer_freq": 2)", {"moe_layer_freq = 2"});
}

TEST(Families, MixtralHasEightExperts) {
  // Mixtral 8x7B v0.1 as it was published.
  const std::string text = R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000})";
  const HfConfig config = parse_hf_config(text, "config.json");
  const model::Model model = model::build(config.model);
  EXPECT_EQ(config.unread_keys, Types{});
  EXPECT_EQ(model.elements(), 46702792704);
  EXPECT_NEAR(model::flops_per_token(model, 0) / 6, 12.88e9 - 32000 * 4096, 2e7) << "13B active parameters";
  expect_refusal("mixtral", R"(, "router_jitter_noise": 0.1)", {"router_jitter_noise = 0.1", "random factors"});
  expect_refusal("mixtral", R"(, "output_router_logits": true)", {"output_router_logits = true", "auxiliary loss"});
}

TEST(Families, Qwen3MoeHasTwoNamesForItsExperts) {
  // Qwen3 30B A3B as it was published.
  const std::string text = R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
    "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
    "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
    "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936})";
  const HfConfig config = parse_hf_config(text, "config.json");
  EXPECT_EQ(config.unread_keys, Types{});
  EXPECT_TRUE(config.model.router_normalize);
  EXPECT_EQ(model::build(config.model).elements(), 30532122624);
  EXPECT_EQ(read("qwen3_moe", R"(, "num_local_experts": 5, "num_experts_per_tok": 1)").experts, 5);
  EXPECT_EQ(read("qwen3_moe", "").experts, 128);
  EXPECT_FALSE(read("qwen3_moe", "").router_normalize);
  EXPECT_EQ(read("qwen3_moe", R"(, "mlp_only_layers": [0, 1])").dense_layers, 2);
  expect_refusal("qwen3_moe", R"(, "mlp_only_layers": [1])", {"mlp_only_layers", "the first layers"});
  expect_refusal("qwen3_moe", R"(, "decoder_sparse_step": 2)", {"decoder_sparse_step = 2"});
  expect_refusal("qwen3_moe", R"(, "use_sliding_window": true)", {"use_sliding_window"});
}

TEST(Families, OlmoeClipsNothing) {
  expect_refusal("olmoe", R"(, "clip_qkv": 8.0)", {"clip_qkv = 8.0", "clipped"});
  EXPECT_EQ(read("olmoe", R"(, "clip_qkv": null)").experts, 64);
}

}  // namespace
}  // namespace trireme::huggingface::expert_families_test
