// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/architecture.hpp"

/// The model families, one function and one file in architectures/ each.
namespace trireme::model {

[[nodiscard]] Architecture llama();
[[nodiscard]] Architecture mistral();
[[nodiscard]] Architecture ministral();
[[nodiscard]] Architecture qwen2();
[[nodiscard]] Architecture qwen3();
[[nodiscard]] Architecture olmo2();
[[nodiscard]] Architecture smollm3();
[[nodiscard]] Architecture gpt2();

inline constexpr Architecture (*families[])() = {llama, mistral, ministral, qwen2, qwen3, olmo2, smollm3, gpt2};

/// The tensors of the families that name them as Llama does.
[[nodiscard]] std::vector<NameRow> llama_names();
/// The keys of config.json that mean what they mean in Llama's.
[[nodiscard]] std::vector<KeyRow> llama_keys();
/// `keys` with `rows` added, in place of those of the same key.
[[nodiscard]] std::vector<KeyRow> with(std::vector<KeyRow> keys, std::initializer_list<KeyRow> rows);

}  // namespace trireme::model
