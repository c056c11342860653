// SPDX-License-Identifier: Apache-2.0
#include "trireme/optimizer/plan.hpp"

#include <algorithm>

#include "trireme/base/philox.hpp"
#include "trireme/base/text.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::optimizer {
namespace {

constexpr int decaying = 0, constant = 1;  // groups

}  // namespace

OptimizerPlan::OptimizerPlan(const config::RunConfig& config)
    : settings_(config.optimizer),
      seed_(config.run.seed),
      groups_{{.weight_decay = config.optimizer.weight_decay}, {.weight_decay = 0}} {
  for (const std::string_view name : adamw_states) states_.push_back({.name = name, .type = config.precision.moments});
}

int OptimizerPlan::group_of(const model::Parameter& parameter) const {
  const bool decays =
      parameter.role != model::Role::router_bias &&
      std::ranges::none_of(settings_.no_decay, [&](const auto& glob) { return glob_match(glob, parameter.name); });
  return decays ? decaying : constant;
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
