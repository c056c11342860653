// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <map>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {

std::string_view to_text(Quantity quantity) {
  switch (quantity) {
    case Quantity::parameter: return "model";
    case Quantity::first_moment: return "first_moment";
    case Quantity::second_moment: return "second_moment";
  }
  throw BugError("to_text: unknown quantity");
}

std::vector<std::string> differences(const Metadata& saved, const Metadata& now) {
  const std::map<std::string, std::string> before(saved.begin(), saved.end());
  const std::map<std::string, std::string> after(now.begin(), now.end());
  std::vector<std::string> lines;
  for (const auto& [key, value] : saved)
    if (!after.contains(key)) lines.push_back(fmt::format("{}: saved {}, now absent", key, value));
  for (const auto& [key, value] : now) {
    const auto found = before.find(key);
    if (found == before.end())
      lines.push_back(fmt::format("{}: not in the checkpoint, now {}", key, value));
    else if (found->second != value)
      lines.push_back(fmt::format("{}: saved {}, now {}", key, found->second, value));
  }
  return lines;
}

std::int64_t SavedParameter::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product *= size;
  return product;
}

Metadata model_metadata(const model::Model& model) {
  const model::Sizes& s = model.sizes;
  Metadata metadata{
      {"model.architecture", model.architecture},         {"model.vocab_size", std::to_string(s.vocab)},
      {"model.hidden_size", std::to_string(s.hidden)},    {"model.intermediate_size", std::to_string(s.intermediate)},
      {"model.layers", std::to_string(s.layers)},         {"model.heads", std::to_string(s.heads)},
      {"model.kv_heads", std::to_string(s.kv_heads)},     {"model.head_dim", std::to_string(s.head_dim)},
      {"model.norm_eps", fmt::format("{}", s.norm_eps)},  {"model.rope_theta", fmt::format("{}", s.rope_theta)},
      {"model.tie_embeddings", s.tied ? "true" : "false"}};
  if (s.positions > 0) metadata.emplace_back("model.positions", std::to_string(s.positions));
  if (s.rope_scaling)
    metadata.emplace_back("model.rope_scaling", fmt::format("factor {}, low_freq_factor {}, high_freq_factor {}, "
                                                            "original_max_position_embeddings {}",
                                                            s.rope_scaling->factor, s.rope_scaling->low_freq_factor,
                                                            s.rope_scaling->high_freq_factor,
                                                            s.rope_scaling->original_max_position_embeddings));
  return metadata;
}

std::vector<SavedParameter> saved_parameters(const model::Model& model) {
  std::vector<SavedParameter> parameters;
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters)
      parameters.push_back({parameter.name, parameter.full_shape()});
  return parameters;
}

std::int64_t files_of(const mesh::Mesh& mesh, std::int64_t ranks_per_file) {
  return (mesh.dp_size() + ranks_per_file - 1) / ranks_per_file * mesh.tensor;
}

std::string shard_path(int dp_rank, int tensor_rank) {
  return fmt::format("shards/dp-{:05}-tp-{:02}.h5", dp_rank, tensor_rank);
}

}  // namespace trireme::checkpoint
