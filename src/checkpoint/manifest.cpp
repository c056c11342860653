// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <map>

#include "trireme/base/error.hpp"
#include "trireme/config/model_texts.hpp"

namespace trireme::checkpoint {

std::string_view to_text(Quantity quantity) {
  if (quantity == Quantity::parameter) return "model";
  return optimizer::adamw_states.at(static_cast<std::size_t>(state_of(quantity)));
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

Metadata model_metadata(const model::Model& model) { return config::model_texts(model.config); }

std::vector<SavedParameter> saved_parameters(const model::Model& model) {
  std::vector<SavedParameter> parameters;
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters)
      parameters.push_back({parameter.name, parameter.full_shape()});
  return parameters;
}

std::vector<optimizer::UpdateRule> saved_rules(const model::Model& model, const optimizer::OptimizerPlan& plan) {
  std::vector<optimizer::UpdateRule> rules;
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters) rules.push_back(plan.rule_of(parameter));
  if (std::ranges::find(rules, optimizer::UpdateRule::muon) == rules.end()) rules.clear();
  return rules;
}

std::string_view to_text(optimizer::UpdateRule rule) { return rule == optimizer::UpdateRule::muon ? "muon" : "adamw"; }

std::int64_t files_of(const mesh::Mesh& mesh, std::int64_t ranks_per_file) {
  return (mesh.dp_size() + ranks_per_file - 1) / ranks_per_file * mesh.tensor * mesh.pipeline;
}

std::string shard_path(int dp_rank, int tensor_rank, std::optional<int> pipeline_rank) {
  return fmt::format("shards/dp-{:05}{}-tp-{:02}.h5", dp_rank,
                     pipeline_rank ? fmt::format("-pp-{:02}", *pipeline_rank) : "", tensor_rank);
}

std::string shard_path(const mesh::Mesh& mesh, int pipeline_rank, int dp_rank, int tensor_rank) {
  return shard_path(dp_rank, tensor_rank, mesh.pipeline > 1 ? std::optional(pipeline_rank) : std::nullopt);
}

}  // namespace trireme::checkpoint
