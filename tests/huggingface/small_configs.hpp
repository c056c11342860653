// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "huggingface/config_text.hpp"
#include "huggingface/directories.hpp"
#include "trireme/base/error.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/architecture.hpp"

/// config.json of small models, in tests of families.
namespace trireme::huggingface {

/// Sizes of a small model of a family, then `more`. With latent attention every head has keys and values.
inline std::string text_of(const std::string& type, const std::string& more) {
  bool latent = false;
  for (const model::Architecture& a : model::architectures()) latent |= a.model_type == type && a.decoder.latent;
  return fmt::format(R"({{"model_type": "{}", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
  "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": {}{}}})",
                     type, latent ? 4 : 2, more);
}

inline config::Model read(const std::string& type, const std::string& more) {
  return parse_hf_config(text_of(type, more), "config.json").model;
}

inline void expect_refusal(const std::string& type, const std::string& more, const std::vector<std::string>& parts) {
  expect_parts(message_of<CheckpointError>([&] { (void)read(type, more); }), parts);
}

}  // namespace trireme::huggingface
