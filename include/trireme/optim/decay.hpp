// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::optim {

/// Elements of a shard that one optimizer rule applies to.
struct DecayRange {
  shard::Range elements;  ///< of the shard
  bool decays = true;     ///< under weight decay
  friend bool operator==(const DecayRange&, const DecayRange&) = default;
};

/// True unless a glob of `no_decay` (optimizer.no_decay) fits the parameter's Hugging Face name.
[[nodiscard]] bool decays(std::string_view name, std::span<const std::string> no_decay);

/// Ranges of parameters in shard `rank` of a block, in order, neighbours under the same rule merged; gaps are left
/// out. `layout` is that of `block`.
[[nodiscard]] std::vector<DecayRange> decay_ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                                   int rank, std::span<const std::string> no_decay);

}  // namespace trireme::optim
