// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {
namespace {

void check_experts(const Model& model, const ExpertPart& part) {
  invariant(part.rank >= 0 && part.rank < part.ranks, "an expert rank lies within its group");
  const auto& experts = model.sizes.decoder.experts;
  if (!experts)
    throw ConfigError(
        fmt::format("mesh.expert = {}: model.architecture = \"{}\" has no experts; set mesh.expert = 1 (`trireme "
                    "models` lists the mixtures of experts)",
                    part.ranks, model.architecture));
  if (experts->count % part.ranks != 0)
    throw ConfigError(fmt::format("mesh.expert = {}: it does not divide model.experts = {}; set {}", part.ranks,
                                  experts->count, config::nearest_divisors(experts->count, part.ranks)));
}

/// The parameters of a layer's experts in the order of their parts: of each part gate and up of an expert side by side,
/// every expert's down after them. all: those of StageKind::moe from the first expert on.
std::vector<int> order_by_part(std::int64_t count, int parts) {
  std::vector<int> order;
  const auto held = static_cast<int>(count / parts);
  for (int first = 0; first < count; first += held) {
    for (int e = first; e < first + held; ++e) order.insert(order.end(), {2 * e, 2 * e + 1});
    for (int e = first; e < first + held; ++e) order.push_back(2 * static_cast<int>(count) + e);
  }
  return order;
}

/// Removes the experts from the end of a layer's block.
ParameterBlock take_experts(ParameterBlock& layer, std::int64_t count, int parts) {
  const auto first = static_cast<std::ptrdiff_t>(layer.parameters.size()) - 3 * count;
  invariant(first >= 0 && is_expert(layer.parameters[static_cast<std::size_t>(first)].role),
            "the experts of a layer are its last parameters");
  ParameterBlock experts{.name = layer.name + ".experts", .parameters = {}, .of_experts = true, .parts = parts};
  for (const int p : order_by_part(count, parts))
    experts.parameters.push_back(layer.parameters[static_cast<std::size_t>(first + p)]);
  layer.parameters.erase(layer.parameters.begin() + first, layer.parameters.end());
  return experts;
}

/// Sets the parameters of a layer of experts: first those of its block, then those of the experts.
void refer_to_experts(Stage& moe, ParamBlock experts, std::int64_t count) {
  moe.parameters.resize(moe.parameters.size() - static_cast<std::size_t>(3 * count));
  for (int p = 0; p < 3 * count; ++p) moe.parameters.push_back({.block = experts, .index = p});
}

/// The three stages of a layer of experts.
std::vector<Stage> stages_of_experts(const Stage& moe, ParamBlock experts, std::int64_t count) {
  Stage route = moe, middle = moe, merge = moe;
  route.name = "route";
  route.kind = StageKind::route;
  route.parameters.resize(moe.parameters.size() - static_cast<std::size_t>(3 * count));
  middle.name = "experts";
  middle.kind = StageKind::experts;
  middle.parameters.clear();
  for (int p = 0; p < 3 * count; ++p) middle.parameters.push_back({.block = experts, .index = p});
  middle.enter = Exchange::dispatch;
  middle.leave = Exchange::combine;
  middle.sums_loads = merge.sums_loads = false;
  merge.name = "merge";
  merge.kind = StageKind::merge;
  merge.parameters.clear();
  return {std::move(route), std::move(middle), std::move(merge)};
}

}  // namespace

Model divide_experts(Model model, const ExpertPart& part) {
  model.part.experts = part;
  const bool divides_sequences = model.part.context.ranks > 1 || model.part.ranks > 1;
  for (ComputeBlock& block : model.compute_blocks)
    for (Stage& stage : block.stages)
      stage.sums_loads = stage.kind == StageKind::moe && part.needs_loads && divides_sequences;
  if (part.ranks == 1 && (model.part.ranks == 1 || !model.sizes.decoder.experts)) return model;
  check_experts(model, part);
  const std::int64_t count = model.sizes.decoder.experts->count;
  // Each block of experts is inserted after its layer's: later blocks move.
  std::vector<ParameterBlock> blocks;
  std::vector<ParamBlock> moved;
  for (ParameterBlock& block : model.parameter_blocks) {
    moved.push_back({static_cast<int>(blocks.size())});
    const bool has_experts = std::ranges::any_of(block.parameters, [](const auto& p) { return is_expert(p.role); });
    blocks.push_back(std::move(block));
    if (!has_experts) continue;
    ParameterBlock experts = take_experts(blocks.back(), count, part.ranks);
    blocks.push_back(std::move(experts));
  }
  model.parameter_blocks = std::move(blocks);
  const auto now = [&](ParamBlock before) { return moved[static_cast<std::size_t>(before.value)]; };
  for (ComputeBlock& block : model.compute_blocks) {
    for (ParamBlock& read : block.reads) read = now(read);
    std::vector<Stage> stages;
    for (Stage& stage : block.stages) {
      for (ParamRef& ref : stage.parameters) ref.block = now(ref.block);
      if (stage.kind != StageKind::moe) {
        stages.push_back(std::move(stage));
        continue;
      }
      const ParamBlock experts{stage.parameters.front().block.value + 1};
      block.reads.push_back(experts);
      if (part.ranks == 1) {
        refer_to_experts(stage, experts, count);
        stages.push_back(std::move(stage));
        continue;
      }
      std::ranges::move(stages_of_experts(stage, experts, count), std::back_inserter(stages));
    }
    block.stages = std::move(stages);
  }
  return model;
}

}  // namespace trireme::model
