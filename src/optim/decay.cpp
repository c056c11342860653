// SPDX-License-Identifier: Apache-2.0
#include "trireme/optim/decay.hpp"

#include <algorithm>

#include "trireme/base/text.hpp"

namespace trireme::optim {

bool decays(std::string_view name, std::span<const std::string> no_decay) {
  return std::ranges::none_of(no_decay, [&](const std::string& glob) { return glob_match(glob, name); });
}

std::vector<DecayRange> decay_ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout, int rank,
                                     std::span<const std::string> no_decay) {
  std::vector<DecayRange> ranges;
  for (const shard::Slice& slice : layout.slices(rank)) {
    const model::Parameter& parameter = block.parameters[static_cast<std::size_t>(slice.parameter)];
    const DecayRange next{{slice.offset, slice.offset + slice.elements.size()},
                          parameter.role != model::Role::router_bias && decays(parameter.name, no_decay)};
    if (!ranges.empty() && ranges.back().elements.end == next.elements.begin && ranges.back().decays == next.decays) {
      ranges.back().elements.end = next.elements.end;
    } else {
      ranges.push_back(next);
    }
  }
  return ranges;
}

}  // namespace trireme::optim
