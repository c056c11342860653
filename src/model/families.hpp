// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/architecture.hpp"

/// The model families, one function and one file in architectures/ each.
namespace trireme::model {

[[nodiscard]] Architecture llama();
[[nodiscard]] Architecture mistral();
[[nodiscard]] Architecture ministral();
[[nodiscard]] Architecture ministral3();
[[nodiscard]] Architecture mixtral();
[[nodiscard]] Architecture qwen2();
[[nodiscard]] Architecture qwen3();
[[nodiscard]] Architecture qwen2_moe();
[[nodiscard]] Architecture qwen3_moe();
[[nodiscard]] Architecture gemma();
[[nodiscard]] Architecture gemma2();
[[nodiscard]] Architecture gemma3();
[[nodiscard]] Architecture olmo2();
[[nodiscard]] Architecture olmo3();
[[nodiscard]] Architecture olmoe();
[[nodiscard]] Architecture exaone4();
[[nodiscard]] Architecture smollm3();
[[nodiscard]] Architecture seed_oss();
[[nodiscard]] Architecture cwm();
[[nodiscard]] Architecture granite();
[[nodiscard]] Architecture phi3();
[[nodiscard]] Architecture glm();
[[nodiscard]] Architecture glm4();
[[nodiscard]] Architecture glm4_moe();
[[nodiscard]] Architecture dots1();
[[nodiscard]] Architecture deepseek_v3();
[[nodiscard]] Architecture glm4_moe_lite();
[[nodiscard]] Architecture youtu();
[[nodiscard]] Architecture helium();
[[nodiscard]] Architecture ernie4_5();
[[nodiscard]] Architecture stablelm();
[[nodiscard]] Architecture starcoder2();
[[nodiscard]] Architecture gpt2();

inline constexpr Architecture (*families[])() = {
    llama, mistral, ministral, ministral3, mixtral,    qwen2,    qwen2_moe, qwen3,       qwen3_moe,
    gemma, gemma2,  gemma3,    olmo2,      olmo3,      olmoe,    exaone4,   smollm3,     seed_oss,
    cwm,   granite, phi3,      glm,        glm4,       glm4_moe, dots1,     deepseek_v3, glm4_moe_lite,
    youtu, helium,  ernie4_5,  stablelm,   starcoder2, gpt2};

/// The tensors of the families that name them as Llama does.
[[nodiscard]] std::vector<NameRow> llama_names();
/// The keys of config.json with the same meaning as in Llama's.
[[nodiscard]] std::vector<KeyRow> llama_keys();
/// `keys` with `rows` added, in place of those of the same key.
[[nodiscard]] std::vector<KeyRow> with(std::vector<KeyRow> keys, std::initializer_list<KeyRow> rows);

/// `names` with those of a router and its experts.
[[nodiscard]] std::vector<NameRow> with_experts(std::vector<NameRow> names, std::string_view router,
                                                std::string_view gate, std::string_view up, std::string_view down);

/// Adds DeepSeek-V3's experts (2024): scores are sigmoids of logits, with a bias for the choice only, in groups; shared
/// experts in addition; dense first layers.
void add_deepseek_experts(Architecture& a);

/// `names` where files hold the parameters of `roles`, in this order, in the rows of one tensor.
[[nodiscard]] std::vector<NameRow> joined_in_files(std::vector<NameRow> names, std::initializer_list<Role> roles,
                                                   std::string_view tensor);

}  // namespace trireme::model
