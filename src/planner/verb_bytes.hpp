// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planner/activations.hpp"
#include "trireme/mesh/groups.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::planner {

/// One collective or copy of a rank.
struct Transfer {
  std::string_view group, operation;
  Bytes bytes;  ///< sent, or copied
};

/// Memory and traffic of one op on a rank.
struct OpBytes {
  Bytes activations;  ///< the most that are on the device while it runs
  std::vector<Transfer> transfers{};
};

/// The bytes of every verb while the ops of a schedule run one after another: one function for each verb that names a
/// block; a verb without one does not compile.
class VerbBytes {
 public:
  /// model, layout and replay_options outlive it.
  VerbBytes(const model::Model& model, const shard::Layout& layout, const ReplayOptions& replay_options);

  /// Advances over `op`.
  [[nodiscard]] OpBytes of(const schedule::Op& op);
  [[nodiscard]] Bytes activations_on_host() const { return activations_.on_host(); }

 private:
  // Traffic of each verb.
  void add(const schedule::Unshard& op);
  void add(const schedule::Reshard& op);
  void add(const schedule::Forward& op);
  void add(const schedule::Recompute& op);
  void add(const schedule::Backward& op);
  void add(const schedule::Rebuild&) {}
  void add(const schedule::ReduceScatter& op);
  void add(const schedule::AllReduce& op);
  void add(const schedule::Update& op);
  void add(const schedule::PrepareMatrices&) {}
  void add(const schedule::GatherMatrices& op);
  void add(const schedule::Orthogonalize&) {}
  void add(const schedule::ScatterMatrices& op);
  void add(const schedule::AllocateGradient&) {}
  void add(const schedule::FreeGradient&) {}
  void add(const schedule::Upload& op);
  void add(const schedule::OffloadGradient& op);
  void add(const schedule::SumSquares& op);
  void add(const schedule::OffloadActivations& op);
  void add(const schedule::DropActivations& op);
  void add(const schedule::AllocateActivations&) {}
  void add(const schedule::ReloadActivations& op);
  void add(const schedule::Exchanged& op);
  void add(const schedule::AllReduceReplicated& op);
  void add(const schedule::Put&) {}
  void add(const schedule::Send& op);
  void add(const schedule::Receive&) {}
  void add(const schedule::Take&) {}
  template <class Other>
  requires(!schedule::of_parameters<Other> && !schedule::of_microbatch<Other>) void add(const Other&) {
  }  // control traffic, which is not counted here
  void transfer(mesh::Group group, std::string_view operation, std::int64_t bytes);
  /// Between device and host.
  void copy(std::string_view operation, std::int64_t bytes);
  /// Rows in the compute dtype to or from experts, with their weights in fp32; these on a GPU by themselves.
  void add_rows(const schedule::Exchanged& op);
  /// To another pipeline rank.
  void pass(std::string_view operation, std::int64_t bytes);

  const model::Model& model_;
  const shard::Layout& layout_;
  const ReplayOptions& replay_options_;
  std::int64_t stream_;        ///< elements of a microbatch's residual stream
  std::int64_t held_stream_;   ///< part of it that one tensor rank holds between stages
  std::int64_t width_, wire_;  ///< bytes of an element of parameters and activations; of a reduced gradient's term
  Activations activations_;
  std::optional<optimizer::OwnerPlan> owners_;  ///< with Muon
  OpBytes bytes_;
};

}  // namespace trireme::planner
