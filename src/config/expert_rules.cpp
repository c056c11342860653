// SPDX-License-Identifier: Apache-2.0
// Rules of models with experts.
#include <fmt/core.h>

#include <array>
#include <string_view>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"

namespace trireme::config {
namespace {

using Broken = std::optional<std::string>;

bool has_experts(const Model& model) {
  return model.experts > 0 && (model.layers == 0 || model.dense_layers < model.layers);
}

/// model.from may bring them.
bool knows_its_experts(const RunConfig& config) { return config.model.experts > 0 || config.model.from.empty(); }

/// A key of [loss] that has no effect on a model without experts.
struct ExpertLoss {
  const char* key;
  double Loss::*weight;

  [[nodiscard]] Broken idle(const RunConfig& config) const {
    if (config.loss.*weight == 0 || has_experts(config.model)) return std::nullopt;
    return fmt::format(
        "{} = {} has no effect on a model without experts; remove it, or choose model.architecture = \"mixtral\", "
        "\"qwen3_moe\" or \"olmoe\"",
        key, config.loss.*weight);
  }
};
constexpr std::array losses = {ExpertLoss{"balance_loss", &Loss::balance_loss},
                               ExpertLoss{"router_z_loss", &Loss::router_z_loss},
                               ExpertLoss{"balance_bias_rate", &Loss::balance_bias_rate}};

Broken expert_ranks_misfit(const RunConfig& config) {
  const std::int64_t ranks = config.mesh.expert, experts = config.model.experts;
  if (ranks == 1) return std::nullopt;
  if (!has_experts(config.model))
    return fmt::format(
        "{} expert ranks, but model.architecture = \"{}\" has no experts; set mesh.expert = 1 (`trireme models` lists "
        "the mixtures of experts)",
        ranks, config.model.architecture);
  if (experts % ranks == 0) return std::nullopt;
  return fmt::format("{} does not divide model.experts = {}; set {}", ranks, experts, nearest_divisors(experts, ranks));
}

Broken tokens_twice(const RunConfig& config) {
  if (config.model.experts == 0 || config.mesh.tensor == 1 || config.mesh.sequence_parallel.value_or(true)) return {};
  return "false with experts and mesh.tensor > 1: every token would go to its experts once for each tensor rank; set "
         "true, or mesh.tensor = 1";
}

Broken graphs_of_experts(const RunConfig& config) {
  if (!config.device.cuda_graphs || !has_experts(config.model)) return std::nullopt;
  return "cuda_graphs replays a captured step, but how many tokens each expert gets differs per step; set cuda_graphs "
         "= false";
}

Broken idle_expert_room(const RunConfig& config) {
  if (config.mesh.expert > 1 || config.mesh.expert_room == Mesh{}.expert_room) return std::nullopt;
  return fmt::format("{} has no effect with mesh.expert = 1; remove it, or set mesh.expert", config.mesh.expert_room);
}

}  // namespace

std::vector<Rule> expert_rules() {
  std::vector<Rule> all;
  for (const ExpertLoss& loss : losses)
    all.push_back(
        {{std::string("loss.") + loss.key, "model.experts", "model.dense_layers"},
         [loss](const RunConfig& config) { return knows_its_experts(config) ? loss.idle(config) : Broken(); }});
  all.push_back({{"mesh.expert", "model.experts", "model.dense_layers"}, [](const RunConfig& config) {
                   return knows_its_experts(config) ? expert_ranks_misfit(config) : Broken();
                 }});
  all.push_back({{"mesh.sequence_parallel", "mesh.tensor", "model.experts"}, tokens_twice});
  all.push_back({{"device.cuda_graphs", "model.experts", "model.dense_layers"}, [](const RunConfig& config) {
                   return knows_its_experts(config) ? graphs_of_experts(config) : Broken();
                 }});
  all.push_back({{"mesh.expert_room", "mesh.expert"}, idle_expert_room});
  return all;
}

void check_experts(const RunConfig& config) {
  Mistakes mistakes;
  for (const ExpertLoss& loss : losses)
    if (const Broken broken = loss.idle(config)) mistakes.add("loss." + *broken);
  if (const Broken broken = expert_ranks_misfit(config)) mistakes.add("mesh.expert: " + *broken);
  if (const Broken broken = graphs_of_experts(config)) mistakes.add("device.cuda_graphs: " + *broken);
  mistakes.raise("the run file and its model do not fit");
}

}  // namespace trireme::config
