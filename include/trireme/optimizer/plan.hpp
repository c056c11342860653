// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/optimizer/owners.hpp"
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
/// AdamW's states in the order of its kernels and of checkpoints. Muon's momentum is a first moment; it has no second.
inline constexpr std::array<std::string_view, 2> adamw_states{"first_moment", "second_moment"};

/// The algorithm that updates a parameter.
enum class UpdateRule : std::uint8_t { adamw, muon };

/// Settings shared by some of the parameters.
struct Group {
  double weight_decay = 0;
  double lr = 1;  ///< factor of the learning rate
};

/// Elements of a shard that belong to one group and are updated by AdamW.
struct UpdateRange {
  shard::Range elements;          ///< of the shard
  int group = 0;                  ///< index in OptimizerPlan::groups()
  std::uint64_t key = 0;          ///< of the random words that round states to bf16
  shard::Hyperslab whole{};       ///< the same elements in the whole parameter
  std::int64_t second_shift = 0;  ///< place of their second moments minus their offset in the shard
  friend bool operator==(const UpdateRange&, const UpdateRange&) = default;
};

/// Places of a state's elements in one shard of a block: those of the shard itself or, where Muon updates some
/// parameters, the second moments of the others end to end.
struct StateLayout {
  std::int64_t elements = 0;         ///< equal for all shards: the most that one has
  bool packed = false;               ///< false: a value for each element of the shard, gaps included
  std::vector<std::int64_t> shifts;  ///< packed: by parameter with the state, place minus offset in the shard
  [[nodiscard]] std::int64_t place(int parameter, std::int64_t offset) const {
    return packed ? offset + shifts[static_cast<std::size_t>(parameter)] : offset;
  }
};

/// States, groups and ranges of a run, equal on every rank.
class OptimizerPlan {
 public:
  explicit OptimizerPlan(const config::RunConfig& config = {});

  [[nodiscard]] const config::Optimizer& settings() const { return settings_; }
  [[nodiscard]] std::span<const StateSpec> states() const { return states_; }
  [[nodiscard]] std::span<const Group> groups() const { return groups_; }
  /// Owners of the matrices that Muon updates; nothing: AdamW updates all.
  [[nodiscard]] const std::optional<OwnerOptions>& matrices() const { return matrices_; }
  [[nodiscard]] UpdateRule rule_of(const model::Parameter& parameter) const;
  /// Whether the elements of a parameter have state `state`.
  [[nodiscard]] bool has(const model::Parameter& parameter, int state) const {
    return state == 0 || rule_of(parameter) == UpdateRule::adamw;
  }
  /// layout: of `block`.
  [[nodiscard]] StateLayout state_layout(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                         int shard, int state) const;
  /// Whether a state is in bf16.
  [[nodiscard]] bool rounds_states() const;
  /// Index of the group of a parameter, by the first of optimizer.groups that it matches. Parameters that match
  /// optimizer.no_decay have no weight decay, unless their group sets it; correction biases of routers never have any.
  [[nodiscard]] int group_of(const model::Parameter& parameter) const;
  /// Ranges of AdamW's parameters in shard `shard` of a block, in order, without gaps between parameters. Neighbours of
  /// the same group are merged, unless states are rounded: then a range has elements of one parameter, their place in
  /// it and a key, and rows that pad a vocabulary, whose values and gradients are zero, are in no range. `layout` is
  /// that of `block`.
  [[nodiscard]] std::vector<UpdateRange> ranges(const model::ParameterBlock& block, const shard::BlockLayout& layout,
                                                int shard) const;

  /// Bytes of all states of a shard of a block in memory.
  [[nodiscard]] Bytes state_bytes(const model::ParameterBlock& block, const shard::BlockLayout& layout) const;
  /// Bytes of a model's parameters and states in checkpoints.
  [[nodiscard]] Bytes saved_bytes(const model::Model& model) const;
  /// Bytes of a rank's shards of parameters and states in fp32, gaps included.
  [[nodiscard]] Bytes saved_bytes(const model::Model& model, const shard::Layout& layout) const;

 private:
  config::Optimizer settings_;
  std::uint64_t seed_;
  std::vector<StateSpec> states_;
  std::vector<Group> groups_;
  std::optional<OwnerOptions> matrices_;
};

}  // namespace trireme::optimizer
