// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/plan.hpp"

#include <algorithm>
#include <map>

#include "trireme/base/philox.hpp"
#include "trireme/base/text.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::optimizer {
namespace {

constexpr int decaying = 0, constant = 1;  // of the parameters in no group; a pair for each of optimizer.groups follows

std::optional<OwnerOptions> owner_options(const config::RunConfig& config) {
  const config::Optimizer& optimizer = config.optimizer;
  if (optimizer.name != config::OptimizerName::muon) return std::nullopt;
  using enum config::NewtonSchulzPrecision;
  const DType type = optimizer.newton_schulz_precision == automatic ? config.precision.compute
                     : optimizer.newton_schulz_precision == bf16    ? DType::bf16
                                                                    : DType::fp32;
  return OwnerOptions{.adamw = optimizer.adamw, .type = type, .window = optimizer.window_bytes};
}

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return glob_match(glob, name); });
}

}  // namespace

OptimizerPlan::OptimizerPlan(const config::RunConfig& config)
    : settings_(config.optimizer),
      seed_(config.run.seed),
      groups_{{.weight_decay = config.optimizer.weight_decay}, {.weight_decay = 0}},
      matrices_(owner_options(config)) {
  for (const config::ParameterGroup& group : settings_.groups) {
    groups_.push_back({.weight_decay = group.weight_decay.value_or(settings_.weight_decay), .lr = group.lr});
    groups_.push_back({.weight_decay = 0, .lr = group.lr});
  }
  for (const std::string_view name : adamw_states) states_.push_back({.name = name, .type = config.precision.moments});
}

int OptimizerPlan::group_of(const model::Parameter& parameter) const {
  const auto group = std::ranges::find_if(
      settings_.groups, [&](const config::ParameterGroup& one) { return matches(one.names, parameter.name); });
  const bool sets_decay = group != settings_.groups.end() && group->weight_decay;
  const bool decays =
      parameter.role != model::Role::router_bias && (sets_decay || !matches(settings_.no_decay, parameter.name));
  const int pair = group == settings_.groups.end() ? 0 : 1 + static_cast<int>(group - settings_.groups.begin());
  return 2 * pair + (decays ? decaying : constant);
}

UpdateRule OptimizerPlan::rule_of(const model::Parameter& parameter) const {
  return matrices_ && takes_muon(parameter, matrices_->adamw) ? UpdateRule::muon : UpdateRule::adamw;
}

StateLayout OptimizerPlan::state_layout(const model::ParameterBlock& block, const shard::BlockLayout& layout, int shard,
                                        int state) const {
  StateLayout found{.elements = layout.shard_elements(), .packed = false, .shifts = {}};
  std::vector<int> having;
  for (int p = 0; p < layout.parameters(); ++p)
    if (has(block.parameters[static_cast<std::size_t>(p)], state)) having.push_back(p);
  if (static_cast<int>(having.size()) == layout.parameters()) return found;
  found.packed = true;
  found.shifts.resize(static_cast<std::size_t>(layout.parameters()));
  std::map<std::int64_t, std::int64_t> elements;  // by the beginning of a shard
  for (const int p : having) {
    const shard::Range whole = layout.range(p);
    for (std::int64_t at = whole.begin; at < whole.end;) {
      const std::int64_t begin = at / layout.shard_elements() * layout.shard_elements(),
                         end = std::min(whole.end, begin + layout.shard_elements());
      std::int64_t& count = elements[begin];
      if (begin == layout.shard(shard).begin) found.shifts[static_cast<std::size_t>(p)] = count - (at - begin);
      count += end - at;
      at = end;
    }
  }
  found.elements = 0;
  for (const auto& [begin, count] : elements) found.elements = std::max(found.elements, count);
  return found;
}

std::vector<UpdateRange> OptimizerPlan::ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                               int shard) const {
  std::vector<UpdateRange> ranges;
  const StateLayout second = state_layout(block, layout, shard, 1);
  if (rounds_states()) {
    for (const shard::StridedSlice& slice : shard::fold(block, shard::whole_slices(block, layout, shard))) {
      const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(slice.parameter)];
      ranges.push_back({.elements = {slice.offset, slice.offset + slice.hyperslab.size()},
                        .group = group_of(parameter),
                        .key = stream_key(seed_, "moments of " + parameter.name),
                        .whole = slice.hyperslab});
    }
    return ranges;
  }
  for (const shard::Slice& slice : layout.slices(shard)) {
    const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(slice.parameter)];
    if (rule_of(parameter) != UpdateRule::adamw) continue;
    const UpdateRange next{.elements = {slice.offset, slice.offset + slice.elements.size()},
                           .group = group_of(parameter),
                           .second_shift = second.place(slice.parameter, slice.offset) - slice.offset};
    if (!ranges.empty() && ranges.back().elements.end == next.elements.begin && ranges.back().group == next.group) {
      ranges.back().elements.end = next.elements.end;
    } else {
      ranges.push_back(next);
    }
  }
  return ranges;
}

bool OptimizerPlan::rounds_states() const {
  return std::ranges::any_of(states_, [](const StateSpec& state) { return state.type == DType::bf16; });
}

Bytes OptimizerPlan::state_bytes(const model::ParameterBlock& block, const shard::BlockLayout& layout) const {
  Bytes bytes;
  for (std::size_t i = 0; i < states_.size(); ++i)
    bytes += Bytes{state_layout(block, layout, 0, static_cast<int>(i)).elements * size_of(states_[i].type)};
  return bytes;
}

Bytes OptimizerPlan::saved_bytes(const model::Model& model) const {
  std::int64_t elements = 0;
  for (const model::ParameterBlock& block : model.parameter_blocks)
    for (const model::Parameter& parameter : block.parameters) {
      elements += parameter.elements();
      for (std::size_t i = 0; i < states_.size(); ++i)
        elements += has(parameter, static_cast<int>(i)) ? parameter.elements() : 0;
    }
  return {elements * size_of(DType::fp32)};
}

Bytes OptimizerPlan::saved_bytes(const model::Model& model, const shard::Layout& layout) const {
  std::int64_t elements = 0;
  for (int b = 0; b < layout.blocks(); ++b) {
    const ParamBlock block{b};
    elements += layout[block].shard_elements();
    for (std::size_t i = 0; i < states_.size(); ++i)
      elements += state_layout(model[block], layout[block], 0, static_cast<int>(i)).elements;
  }
  return {elements * size_of(DType::fp32)};
}

}  // namespace trireme::optimizer
