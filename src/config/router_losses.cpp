// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {
namespace {

std::optional<std::string> idle(const Model& model, std::string_view key, double weight) {
  const bool has_experts = model.experts > 0 && (model.layers == 0 || model.dense_layers < model.layers);
  if (weight == 0 || has_experts) return std::nullopt;
  return fmt::format(
      "{} = {} has no effect on a model without experts; remove it, or choose model.architecture = \"mixtral\", "
      "\"qwen3_moe\" or \"olmoe\"",
      key, weight);
}

bool knows_its_experts(const RunConfig& config) { return config.model.experts > 0 || config.model.from.empty(); }

}  // namespace

std::optional<std::string> idle_balance_loss(const RunConfig& config) {
  return knows_its_experts(config) ? idle(config.model, "balance_loss", config.loss.balance_loss) : std::nullopt;
}

std::optional<std::string> idle_router_z_loss(const RunConfig& config) {
  return knows_its_experts(config) ? idle(config.model, "router_z_loss", config.loss.router_z_loss) : std::nullopt;
}

void check_router_losses(const RunConfig& config) {
  Mistakes mistakes;
  for (const auto& [key, weight] : {std::pair{"loss.balance_loss", config.loss.balance_loss},
                                    std::pair{"loss.router_z_loss", config.loss.router_z_loss}})
    if (auto broken = idle(config.model, key, weight)) mistakes.add(*std::move(broken));
  mistakes.raise("the run file and its model do not fit");
}

}  // namespace trireme::config
