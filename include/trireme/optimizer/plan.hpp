// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/shard/hyperslab.hpp"
#include "trireme/shard/layout.hpp"

/// The optimizer as values: the states of each element and the update of each parameter.
namespace trireme::optimizer {

/// Value of every element of a parameter that the optimizer keeps between steps.
struct StateSpec {
  std::string_view name;     ///< group of its datasets in checkpoints, if it is fp32
  DType type = DType::fp32;  ///< in memory
  friend bool operator==(const StateSpec&, const StateSpec&) = default;
};
/// AdamW's states in the order of its kernels and of checkpoints.
inline constexpr std::array<std::string_view, 2> adamw_states{"first_moment", "second_moment"};

/// Settings shared by some of the parameters.
struct Group {
  double weight_decay = 0;
  double lr = 1;  ///< factor of the learning rate
};

/// Elements of a shard that belong to one group.
struct UpdateRange {
  shard::Range elements;     ///< of the shard
  int group = 0;             ///< index in OptimizerPlan::groups()
  std::uint64_t key = 0;     ///< of the random words that round states to bf16
  shard::Hyperslab whole{};  ///< the same elements in the whole parameter
  friend bool operator==(const UpdateRange&, const UpdateRange&) = default;
};

/// States, groups and ranges of a run, equal on every rank.
class OptimizerPlan {
 public:
  explicit OptimizerPlan(const config::RunConfig& config = {});

  [[nodiscard]] const config::Optimizer& settings() const { return settings_; }
  [[nodiscard]] std::span<const StateSpec> states() const { return states_; }
  [[nodiscard]] std::span<const Group> groups() const { return groups_; }
  /// Whether a state is in bf16.
  [[nodiscard]] bool rounds_states() const;
  /// Index of the group of a parameter, by the first of optimizer.groups that it matches. Parameters that match
  /// optimizer.no_decay have no weight decay, unless their group sets it; correction biases of routers never have any.
  [[nodiscard]] int group_of(const model::Parameter& parameter) const;
  /// Ranges of parameters in shard `shard` of a block, in order, without gaps between parameters. Neighbours of the
  /// same group are merged, unless states are rounded: then a range has elements of one parameter, their place in it
  /// and a key, and rows that pad a vocabulary, whose values and gradients are zero, are in no range. `layout` is that
  /// of `block`.
  [[nodiscard]] std::vector<UpdateRange> ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                                int shard) const;

  /// Bytes of all states in memory. A state has an element for each element of the shard, gaps included.
  [[nodiscard]] Bytes state_bytes(std::int64_t shard_elements) const;
  /// Bytes of parameters and states in checkpoints.
  [[nodiscard]] Bytes saved_bytes(std::int64_t elements) const;

 private:
  config::Optimizer settings_;
  std::uint64_t seed_;
  std::vector<StateSpec> states_;
  std::vector<Group> groups_;
};

}  // namespace trireme::optimizer
