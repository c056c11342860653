// SPDX-License-Identifier: Apache-2.0
// The text parts of multimodal directories: config.json as published, in all forms; tensors by their names.
#include <gtest/gtest.h>

#include <algorithm>

#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/model/architecture.hpp"

namespace trireme::huggingface::multimodal_test {
namespace {

using Keys = std::vector<std::string>;

HfConfig read(const std::string& text) { return parse_hf_config(text, "config.json"); }

/// Reads a published config.json: every key is understood, and the model has so many elements.
HfConfig published(const std::string& text, std::int64_t elements) {
  HfConfig config = read(text);
  EXPECT_EQ(config.unread_keys, Keys{});
  EXPECT_EQ(model::build(config.model).elements(), elements);
  return config;
}

void expect_refused(const std::string& text, const Keys& parts) {
  const std::string message = message_of<CheckpointError>([&] { (void)read(text); });
  expect_parts(message, parts);
  EXPECT_NE(message, "") << text;
}

const std::string gemma_3_4b = R"({"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
  "eoi_token_index": 256000, "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
  "mm_tokens_per_image": 256, "model_type": "gemma3",
  "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
  "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
    "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})";
const std::string mistral_small_3_1 =
    R"({"architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
  "model_type": "mistral3", "multimodal_projector_bias": false, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
  "text_config": {"attention_dropout": 0.0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 32768, "max_position_embeddings": 131072, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_theta": 1000000000.0, "sliding_window": null, "use_cache": true, "vocab_size": 131072},
  "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "vision_config": {"model_type": "pixtral"},
  "vision_feature_layer": -1})";
const std::string qwen_2_5_vl_3b =
    R"({"architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0,
  "bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652, "vision_end_token_id": 151653,
  "vision_token_id": 151654, "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000,
  "max_window_layers": 70, "model_type": "qwen2_5_vl", "num_attention_heads": 16, "num_hidden_layers": 36,
  "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
  "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.41.2", "use_cache": true,
  "use_sliding_window": false, "vision_config": {"depth": 32}, "rope_scaling": {"type": "mrope",
  "mrope_section": [16, 24, 24]}, "vocab_size": 151936})";

TEST(Multimodal, PublishedFilesAreReadWithTheDefaultsOfTheirClasses) {
  const HfConfig gemma = published(gemma_3_4b, 3880263168);
  EXPECT_EQ(gemma.model.architecture, "gemma3");
  EXPECT_EQ(gemma.model.vocab_size, 262208);
  EXPECT_EQ(gemma.model.heads, 8);
  EXPECT_EQ(gemma.model.kv_heads, 4);
  EXPECT_EQ(gemma.model.head_dim, 256);
  EXPECT_TRUE(gemma.model.tie_embeddings);
  EXPECT_EQ(gemma.eos_token_ids, (std::vector<std::int64_t>{1, 106}));
  const HfConfig small = published(mistral_small_3_1, 22901314560);
  EXPECT_EQ(small.model.architecture, "mistral");
  EXPECT_EQ(small.model.rope_theta, 1e9);
  EXPECT_TRUE(small.tied_unsaid);
  const HfConfig qwen = published(qwen_2_5_vl_3b, 3085938688);
  EXPECT_EQ(qwen.model.architecture, "qwen2");
  EXPECT_FALSE(qwen.model.rope_scaling);
  EXPECT_TRUE(qwen.model.tie_embeddings);
  const HfConfig llava = published(R"({"architectures": ["LlavaForConditionalGeneration"], "ignore_index": -100,
    "image_token_index": 32000, "model_type": "llava", "pad_token_id": 32001, "projector_hidden_act": "gelu",
    "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "architectures": ["LlamaForCausalLM"],
      "max_position_embeddings": 4096, "model_type": "llama", "rms_norm_eps": 1e-05, "torch_dtype": "float16",
      "vocab_size": 32064}, "tie_word_embeddings": false, "torch_dtype": "float16", "vision_config": {},
    "vision_feature_layer": -2, "vision_feature_select_strategy": "default", "vocab_size": 32064})",
                                   6738939904);
  EXPECT_EQ(llava.model.intermediate_size, 11008);
  EXPECT_EQ(llava.model.kv_heads, 32);
  const HfConfig qwen3 = published(R"({"architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
    "model_type": "qwen3_vl", "text_config": {"attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
      "dtype": "bfloat16", "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
      "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 262144,
      "model_type": "qwen3_vl_text", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-06, "rope_scaling": {"mrope_interleaved": true, "mrope_section": [24, 20, 20],
      "rope_type": "default"}, "rope_theta": 5000000, "tie_word_embeddings": true, "use_cache": true,
      "vocab_size": 151936}, "tie_word_embeddings": true, "transformers_version": "4.57.0.dev0",
    "video_token_id": 151656, "vision_config": {}, "vision_end_token_id": 151653, "vision_start_token_id": 151652})",
                                   1720574976);
  EXPECT_EQ(qwen3.model.rope_theta, 5e6);
  EXPECT_EQ(qwen3.max_position_embeddings, 262144);
}

/// A small LLaVA; `outer` and `text` are added to its tables.
std::string llava(const std::string& outer = "", const std::string& text = "", const std::string& type = "llava") {
  return fmt::format(R"({{"model_type": "{}"{}, "text_config": {{"vocab_size": 11, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 6{}}}}})",
                     type, outer, text);
}

TEST(Multimodal, TheTwoTablesDecideOnTyingAsInTransformers) {
  const auto tied = [](const char* type, const char* outer, const char* text) {
    const auto key = [](const std::string& value) {
      return value.empty() ? "" : R"(, "tie_word_embeddings": )" + value;
    };
    return read(llava(key(outer), key(text), type)).model.tie_embeddings;
  };
  EXPECT_TRUE(tied("mistral3", "true", "false")) << "the outer table's";
  EXPECT_FALSE(tied("mistral3", "false", "true"));
  EXPECT_FALSE(tied("mistral3", "", "false"));
  EXPECT_TRUE(tied("mistral3", "", ""));
  EXPECT_TRUE(tied("llava", "false", "true")) << "forwarded by its class";
  EXPECT_TRUE(tied("llava", "", "true"));
  EXPECT_FALSE(tied("llava", "", ""));
  EXPECT_FALSE(tied("smolvlm", "false", "true"));
}

TEST(Multimodal, WhatIsNotUnderstoodIsRefusedByItsKey) {
  expect_refused(llava("", "", "mllama"), {"model_type = \"mllama\" is a multimodal model that is not read", "gemma3"});
  expect_refused(llava("", R"(, "model_type": "cohere")"), {"text_config.model_type = \"cohere\"", "that of a family"});
  expect_refused(llava("", R"(, "model_type": "llama")", "gemma3"),
                 {"text_config.model_type = \"llama\"", "\"gemma3_text\""});
  expect_refused(llava("", R"(, "model_type": "qwen2_5_vl_text")"), {"text_config.model_type = \"qwen2_5_vl_text\""});
  expect_refused(R"({"model_type": "gemma3"})", {"text_config is missing"});
  expect_refused(R"({"model_type": "gemma3", "text_config": 3})", {"text_config is not a table"});
  expect_refused(llava(R"(, "quantization_config": {"quant_method": "fp8"})"), {"quantization_config"});
  expect_refused(llava("", R"(, "quantization_config": {"quant_method": "fp8"})"), {"text_config.quantization_config"});
  expect_refused(llava(R"(, "vocab_size": 12)"), {"vocab_size = 12 and text_config.vocab_size = 11 differ"});
  expect_refused(llava(R"(, "architectures": ["LlavaModel"])"), {"architectures", "LlavaForConditionalGeneration"});
  expect_refused(llava(R"(, "tie_word_embeddings": 1)"), {"tie_word_embeddings = 1; expected true or false"});
  expect_refused(llava("", R"(, "hidden_act": "relu")"), {"hidden_act = \"relu\""});
  expect_refused(llava("", R"(, "rope_scaling": {"rope_type": "axial", "factor": 2})"),
                 {"text_config.rope_scaling.rope_type = \"axial\""});
  expect_refused(llava("", R"(, "final_logit_softcapping": 30.0)", "gemma3"),
                 {"text_config.final_logit_softcapping = 30", "Gemma3ForConditionalGeneration does not apply it"});
  expect_refused(llava("", R"(, "use_bidirectional_attention": true)", "gemma3"), {"use_bidirectional_attention"});
  expect_refused(llava("", R"(, "use_sliding_window": true)", "qwen3_vl"), {"text_config.use_sliding_window"});
  expect_refused(R"({"model_type": "llava", "text_config": {"model_type": "granite", "hidden_size": 8}})",
                 {"text_config.vocab_size is missing", "text_config.num_hidden_layers is missing"});
  EXPECT_EQ(read(llava(R"(, "chess": 3)", R"(, "draughts": 2)")).unread_keys,
            (Keys{"text_config.draughts = 2", "chess = 3"}));
}

/// A LLaVA directory whose text part is `small_model`, its tensors named by `named`, and tensors of a vision tower.
void put_llava(const std::string& path, bool tied, std::string (*named)(const std::string&),
               const std::vector<RawTensor>& more = {}, const std::string& outer = "") {
  std::vector<RawTensor> tensors = tensors_of(small_model(tied));
  for (RawTensor& tensor : tensors) tensor.name = named(tensor.name);
  tensors.push_back({.name = "vision_tower.a.weight", .shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}});
  tensors.push_back({.name = "model.multi_modal_projector.bias", .shape = {2}, .values = {1, 2}});
  tensors.insert(tensors.end(), more.begin(), more.end());
  put_file(path + "/config.json", llava(outer));
  put_file(path + "/model.safetensors", weights(tensors));
}

std::string old_name(const std::string& own) { return "language_model." + own; }
std::string new_name(const std::string& own) {
  return own.starts_with("lm_head.") ? own : "model.language_model." + own.substr(6);
}

TEST(Multimodal, TheTextPartIsReadUnderBothNamesAndTheRestIsCounted) {
  for (const auto named : {old_name, new_name}) {
    const TemporaryDirectory root;
    put_llava(root / "mm", false, named);
    const HfDirectory directory = HfDirectory::open(root / "mm");
    directory.check(small_model(false));
    EXPECT_EQ(directory.tensors_aside(), 2);
    EXPECT_EQ(directory.bytes_aside().value, 8 * 4);
    EXPECT_EQ(directory.names().size(), tensors_of(small_model(false)).size());
    for (const RawTensor& tensor : tensors_of(small_model(false)))
      EXPECT_EQ(read_all(directory, tensor), tensor.values) << tensor.name;
    std::vector<std::string> lines;
    const log::Sink before = log::set_sink([&](log::Level, std::string_view line) { lines.emplace_back(line); });
    warn_of_unread_keys(directory.config(), root / "mm");
    log::set_sink(before);
    ASSERT_EQ(lines.size(), 1U);
    expect_parts(lines.front(), {"model_type = llava", "as llama", "2 other tensors (32 B)"});
  }
}

TEST(Multimodal, TensorsOfNeitherPartAreRefused) {
  const TemporaryDirectory root;
  put_llava(root / "mm", false, old_name, {{.name = "audio_tower.weight", .shape = {1}, .values = {1}}});
  expect_parts(message_of<CheckpointError>([&] { (void)HfDirectory::open(root / "mm"); }),
               {"audio_tower.weight", "would not be used"});
  put_llava(root / "mm", false, old_name,
            {{.name = "model.language_model.norm.weight", .shape = {8}, .values = std::vector<float>(8)}});
  expect_parts(message_of<CheckpointError>([&] { (void)HfDirectory::open(root / "mm"); }),
               {"language_model.model.norm.weight", "model.language_model.norm.weight", "the same parameter"});
  put_llava(root / "mm", false, old_name,
            {{.name = "language_model.model.layers.0.self_attn.q_norm.weight", .shape = {1}, .values = {1}}});
  expect_parts(message_of<CheckpointError>([&] { HfDirectory::open(root / "mm").check(small_model(false)); }),
               {"q_norm"});
}

TEST(Multimodal, WhereNoTableTiesTheFilesDecideWhetherThereIsAHead) {
  const TemporaryDirectory root;
  const auto tied = [&](bool in_files, const std::string& outer) {
    put_llava(root / "mm", in_files, old_name, {}, outer);
    put_file(root / "mm/config.json", llava(outer, R"(, "sliding_window": null)", "mistral3"));
    return read_hf_config(root / "mm").model.tie_embeddings;
  };
  EXPECT_FALSE(tied(false, ""));
  EXPECT_TRUE(tied(true, ""));
  EXPECT_TRUE(tied(false, R"(, "tie_word_embeddings": true)")) << "said: refused later if the head differs";
  std::filesystem::remove(root / "mm/model.safetensors");
  EXPECT_TRUE(read_hf_config(root / "mm").model.tie_embeddings);
}

}  // namespace
}  // namespace trireme::huggingface::multimodal_test
