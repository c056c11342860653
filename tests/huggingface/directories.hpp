// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "huggingface/files.hpp"
#include "huggingface/half.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/model/model.hpp"

namespace trireme::huggingface {

/// config.json of `small_model` as transformers 4 writes it; `more` is put before its end, such as `, "mlp_bias":
/// true`.
inline std::string config_text(bool tied, const std::string& more = "") {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 11, "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
  "hidden_act": "silu", "rms_norm_eps": 1e-06, "tie_word_embeddings": {}{}}})",
      tied, more);
}

inline model::Model small_model(bool tied) {
  return model::build(parse_hf_config(config_text(tied), "config.json").model);
}

struct RawTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string dtype = "F32";
  std::vector<float> values;
};

/// The parameters of `model` with a distinct value in every element.
inline std::vector<RawTensor> tensors_of(const model::Model& model, const std::string& dtype = "F32") {
  std::vector<RawTensor> tensors;
  float value = -3;
  for (const model::ParameterBlock& block : model.parameter_blocks) {
    for (const model::Parameter& parameter : block.parameters) {
      RawTensor tensor{.name = parameter.name, .shape = parameter.shape, .dtype = dtype, .values = {}};
      for (std::int64_t i = 0; i < parameter.elements(); ++i) tensor.values.push_back(value += 0.015625F);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

inline std::string raw_bytes(const RawTensor& tensor) {
  if (tensor.dtype == "F32") return bytes_of(tensor.values);
  std::vector<std::uint16_t> words;
  for (const float value : tensor.values) words.push_back(float_to_bf16(value));
  return bytes_of(words);
}

inline std::string weights(const std::vector<RawTensor>& tensors) {
  std::string header = "{";
  std::string data;
  for (const RawTensor& tensor : tensors) {
    const std::string bytes = raw_bytes(tensor);
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", header.size() > 1 ? "," : "",
                          tensor.name, tensor.dtype, tensor.shape, data.size(), data.size() + bytes.size());
    data += bytes;
  }
  return safetensors(header + "}", data);
}

inline std::vector<float> read_all(const HfDirectory& directory, const RawTensor& tensor) {
  std::vector<float> values(tensor.values.size());
  directory.read_slice(tensor.name, {.begin = 0, .end = static_cast<std::int64_t>(values.size())}, values);
  return values;
}

}  // namespace trireme::huggingface
