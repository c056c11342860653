// SPDX-License-Identifier: Apache-2.0
// The pass that places Muon's ops.
#include <algorithm>
#include <vector>

#include "trireme/schedule/passes/passes.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::schedule {
namespace {

/// Writes the tail of a step: windows in pairs, so that one is exchanged while the other is orthogonalized or updated,
/// and updates in their order, each as soon as its window's matrices are back.
class Tail {
 public:
  Tail(const optimizer::OwnerPlan& owners, std::vector<Update> updates)
      : owners_(owners), updates_(std::move(updates)) {}

  std::vector<Op> run() {
    const int windows = static_cast<int>(owners_.windows().size());
    for (int w = 0; w < windows; w += 2) {
      const bool pair = w + 1 < windows;
      begin(w);
      if (w > 0) update(w - 1);
      if (pair) begin(w + 1);
      finish(w);
      if (pair) finish(w + 1);
      update(w);
      if (pair && w + 2 >= windows) update(w + 1);
    }
    for (; next_ < updates_.size(); ++next_) ops_.emplace_back(updates_[next_]);
    return std::move(ops_);
  }

 private:
  [[nodiscard]] Matrices matrices(int w) const {
    const optimizer::MatrixWindow& window = owners_.windows()[static_cast<std::size_t>(w)];
    return {.first = window.first,
            .last = window.last,
            .slot = w % optimizer::matrix_slots,
            .beside = updates_.front().beside};
  }
  [[nodiscard]] bool alone() const { return owners_.ranks() == 1; }
  void begin(int w) {
    ops_.emplace_back(PrepareMatrices{matrices(w)});
    if (!alone()) ops_.emplace_back(GatherMatrices{matrices(w)});
  }
  void finish(int w) {
    ops_.emplace_back(Orthogonalize{matrices(w), alone()});
    if (!alone()) ops_.emplace_back(ScatterMatrices{matrices(w)});
  }
  /// Updates up to the last block of the window.
  void update(int w) {
    const optimizer::MatrixWindow& window = owners_.windows()[static_cast<std::size_t>(w)];
    for (; next_ < updates_.size() && updates_[next_].block <= window.last; ++next_) {
      Update op = updates_[next_];
      if (std::ranges::find(window.matrices, op.block, &optimizer::Matrix::block) != window.matrices.end())
        op.matrices = matrices(w).slot;
      ops_.emplace_back(op);
    }
  }

  const optimizer::OwnerPlan& owners_;
  std::vector<Update> updates_;
  std::size_t next_ = 0;
  std::vector<Op> ops_;
};

}  // namespace

Schedule insert_matrices(Schedule schedule, const model::Model& model, const std::optional<MuonPolicy>& policy) {
  if (!policy) return schedule;
  const shard::Layout layout(model, policy->shards);
  const optimizer::OwnerPlan owners(model, layout, policy->owners);
  if (owners.windows().empty()) return schedule;
  const auto first =
      std::ranges::find_if(schedule.ops, [](const Op& op) { return std::holds_alternative<Update>(op); });
  std::vector<Update> updates;
  for (auto op = first; op != schedule.ops.end(); ++op) updates.push_back(std::get<Update>(*op));
  schedule.ops.erase(first, schedule.ops.end());
  const std::vector<Op> tail = Tail(owners, std::move(updates)).run();
  schedule.ops.insert(schedule.ops.end(), tail.begin(), tail.end());
  return schedule;
}

}  // namespace trireme::schedule
