// SPDX-License-Identifier: Apache-2.0
// The multimodal models of transformers that are read as text: LLaVA (Liu et al. 2023) and models built like it, the
// VL models of Qwen (Bai et al. 2025), Idefics 3 and SmolVLM (Marafioti et al. 2025).
#include "trireme/model/multimodal.hpp"

#include <algorithm>

#include "trireme/model/architecture.hpp"

namespace trireme::model {

namespace {

using Numbers = std::vector<AbsentNumber>;

Numbers sizes(double vocab, double hidden, double intermediate, double layers, double heads, Numbers more = {}) {
  Numbers list = {{"vocab_size", vocab},
                  {"hidden_size", hidden},
                  {"intermediate_size", intermediate},
                  {"num_hidden_layers", layers},
                  {"num_attention_heads", heads}};
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

std::vector<TextType> make_text_types() {
  const Numbers mistral = sizes(32000, 4096, 14336, 32, 32, {{"num_key_value_heads", 8}});
  const Numbers qwen = sizes(151936, 4096, 22016, 32, 32, {{"num_key_value_heads", 32}});
  const Numbers qwen2_vl =
      sizes(152064, 8192, 29568, 80, 64,
            {{"num_key_value_heads", 8}, {"rms_norm_eps", 1e-5}, {"rope_theta", 1e6}, {"max_window_layers", 80}});
  Numbers qwen3_vl = qwen;
  qwen3_vl.push_back({"rope_theta", 5e5});
  std::vector<TextType> list = {
      {"llama", "llama", sizes(32000, 4096, 11008, 32, 32)},
      {"mistral", "mistral", mistral},
      {"qwen2", "qwen2", qwen},
      {"qwen3", "qwen3", qwen},
      {"gemma3_text", "gemma3_text", sizes(262208, 2304, 9216, 26, 8)},
      {.model_type = "qwen2_vl_text", .family_type = "qwen2", .absent = qwen2_vl, .mrope = true},
      {.model_type = "qwen2_5_vl_text", .family_type = "qwen2", .absent = qwen2_vl, .mrope = true},
      {.model_type = "qwen3_vl_text",
       .family_type = "qwen3",
       .absent = qwen3_vl,
       .mrope = true,
       .unread = {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}}};
  for (const Architecture& a : architectures())  // the others, whose sizes must be there
    if (std::ranges::find(list, a.model_type, &TextType::model_type) == list.end())
      list.push_back({.model_type = a.model_type, .family_type = a.model_type, .absent = {}});
  return list;
}

/// Names of transformers before 4.52 and since 5, and of the versions between.
const std::vector<TextPrefix> llava_names = {{"language_model.model.", "model."},
                                             {"language_model.lm_head.", "lm_head."},
                                             {"model.language_model.", "model."},
                                             {"lm_head.", "lm_head."}};
const std::vector<std::string_view> llava_aside = {"vision_tower.",          "model.vision_tower.",
                                                   "multi_modal_projector.", "model.multi_modal_projector.",
                                                   "image_newline",          "model.image_newline"};

}  // namespace

std::span<const Multimodal> multimodals() {
  static const std::vector<Multimodal> all = [] {
    const Multimodal llava = {.model_type = "llava",
                              .class_name = "LlavaForConditionalGeneration",
                              .text_type = "llama",
                              .any_text = true,
                              .text_may_tie = true,
                              .names = llava_names,
                              .aside = llava_aside};
    Multimodal llava_next = llava;
    llava_next.model_type = "llava_next";
    llava_next.class_name = "LlavaNextForConditionalGeneration";
    Multimodal mistral3 = llava;
    mistral3.model_type = "mistral3";
    mistral3.class_name = "Mistral3ForConditionalGeneration";
    mistral3.text_type = "mistral";
    mistral3.tied_absent = true;
    mistral3.text_may_tie = false;
    Multimodal gemma3 = mistral3;
    gemma3.model_type = "gemma3";
    gemma3.class_name = "Gemma3ForConditionalGeneration";
    gemma3.text_type = "gemma3_text";
    gemma3.any_text = false;
    const Multimodal qwen2_vl = {
        .model_type = "qwen2_vl",
        .class_name = "Qwen2VLForConditionalGeneration",
        .text_type = "qwen2_vl_text",
        .text_may_tie = true,
        .flat = true,
        .names = {{"model.language_model.", "model."}, {"model.", "model."}, {"lm_head.", "lm_head."}},
        .aside = {"visual.", "model.visual."}};
    Multimodal qwen2_5_vl = qwen2_vl;
    qwen2_5_vl.model_type = "qwen2_5_vl";
    qwen2_5_vl.class_name = "Qwen2_5_VLForConditionalGeneration";
    qwen2_5_vl.text_type = "qwen2_5_vl_text";
    Multimodal qwen3_vl = qwen2_vl;
    qwen3_vl.model_type = "qwen3_vl";
    qwen3_vl.class_name = "Qwen3VLForConditionalGeneration";
    qwen3_vl.text_type = "qwen3_vl_text";
    qwen3_vl.text_may_tie = qwen3_vl.flat = false;
    qwen3_vl.names = {{"model.language_model.", "model."}, {"lm_head.", "lm_head."}};
    qwen3_vl.aside = {"model.visual."};
    Multimodal idefics3 = llava;
    idefics3.model_type = "idefics3";
    idefics3.class_name = "Idefics3ForConditionalGeneration";
    idefics3.text_may_tie = false;
    idefics3.names = {{"model.text_model.", "model."}, {"lm_head.", "lm_head."}};
    idefics3.aside = {"model.vision_model.", "model.connector."};
    Multimodal smolvlm = idefics3;
    smolvlm.model_type = "smolvlm";
    smolvlm.class_name = "SmolVLMForConditionalGeneration";
    return std::vector{gemma3, mistral3, llava, llava_next, qwen2_vl, qwen2_5_vl, qwen3_vl, idefics3, smolvlm};
  }();
  return all;
}

const Multimodal* multimodal(std::string_view model_type) {
  const auto all = multimodals();
  const auto found = std::ranges::find(all, model_type, &Multimodal::model_type);
  return found == all.end() ? nullptr : &*found;
}

const TextType* text_type(std::string_view model_type) {
  static const std::vector<TextType> all = make_text_types();
  const auto found = std::ranges::find(all, model_type, &TextType::model_type);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace trireme::model
