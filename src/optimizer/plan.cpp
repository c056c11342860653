// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/plan.hpp"

#include <algorithm>

#include "trireme/base/philox.hpp"
#include "trireme/base/text.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::optimizer {
namespace {

constexpr int decaying = 0, constant = 1;  // of the parameters in no group; a pair for each of optimizer.groups follows

bool matches(const std::vector<std::string>& globs, const std::string& name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return glob_match(glob, name); });
}

}  // namespace

OptimizerPlan::OptimizerPlan(const config::RunConfig& config)
    : settings_(config.optimizer),
      seed_(config.run.seed),
      groups_{{.weight_decay = config.optimizer.weight_decay}, {.weight_decay = 0}} {
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

std::vector<UpdateRange> OptimizerPlan::ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                               int shard) const {
  std::vector<UpdateRange> ranges;
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
    const UpdateRange next{{slice.offset, slice.offset + slice.elements.size()},
                           group_of(block.parameters[static_cast<std::size_t>(slice.parameter)])};
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

Bytes OptimizerPlan::state_bytes(std::int64_t shard_elements) const {
  Bytes bytes;
  for (const StateSpec& state : states_) bytes += Bytes{shard_elements * size_of(state.type)};
  return bytes;
}

Bytes OptimizerPlan::saved_bytes(std::int64_t elements) const {
  return {elements * size_of(DType::fp32) * static_cast<std::int64_t>(1 + states_.size())};
}

}  // namespace trireme::optimizer
