// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/model/architecture.hpp"

/// The model families, one function and one file in architectures/ each.
namespace trireme::model {

[[nodiscard]] Architecture llama();
[[nodiscard]] Architecture gpt2();

inline constexpr Architecture (*families[])() = {llama, gpt2};

/// The tensors of the families that name them as Llama does.
[[nodiscard]] std::vector<NameRow> llama_names();
/// The keys of config.json that mean what they mean in Llama's.
[[nodiscard]] std::vector<KeyRow> llama_keys();

}  // namespace trireme::model
