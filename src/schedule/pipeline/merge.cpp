// SPDX-License-Identifier: Apache-2.0
#include "schedule/pipeline/merge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

constexpr int steps = 2;

class Merge {
 public:
  Merge(std::span<const Schedule> lists, std::span<const model::PipelinePart> parts)
      : lists_(lists), parts_(parts), next_(lists.size(), 0) {}

  std::vector<std::string> run() {
    // Ranks that may have become able to proceed.
    std::vector<int> ready;
    for (int rank = 0; rank < count(); ++rank) ready.push_back(rank);
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      while (!ended(rank)) {
        const std::vector<int> together = partners(rank);
        if (together.empty()) break;
        for (const int other : together) {
          ++next_[at(other)];
          if (other != rank) ready.push_back(other);
        }
      }
    }
    std::vector<std::string> stuck;
    for (int rank = 0; rank < count(); ++rank)
      if (!ended(rank)) stuck.push_back(stands(rank));
    return stuck;
  }

 private:
  [[nodiscard]] static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  [[nodiscard]] int count() const { return static_cast<int>(lists_.size()); }
  [[nodiscard]] bool ended(int rank) const {
    return next_[at(rank)] >= static_cast<std::size_t>(steps) * lists_[at(rank)].ops.size();
  }
  [[nodiscard]] std::size_t index(int rank) const { return next_[at(rank)] % lists_[at(rank)].ops.size(); }
  [[nodiscard]] const Op& op(int rank) const { return lists_[at(rank)].ops[index(rank)]; }

  /// Ranks that call a joint op together; none for other ops.
  [[nodiscard]] std::vector<int> joins(int rank) const {
    const auto* sum = std::get_if<AllReduceReplicated>(&op(rank));
    const bool sums = sum != nullptr && sum->over == Copies::pipeline;
    if (!sums && !std::holds_alternative<ClipNorm>(op(rank))) return {};
    std::vector<int> all;
    for (int other = 0; other < count(); ++other)
      if (!sums || holds_copy(other, parts_[at(rank)].model[sum->block].name)) all.push_back(other);
    return all;
  }
  [[nodiscard]] bool holds_copy(int rank, const std::string& name) const {
    const auto& blocks = parts_[at(rank)].model.parameter_blocks;
    return std::any_of(blocks.begin(), blocks.end(),
                       [&](const model::ParameterBlock& block) { return block.name == name; });
  }
  [[nodiscard]] bool same_joint_op(int a, int b) const {
    if (ended(b) || op(a).index() != op(b).index()) return false;
    const auto* sum = std::get_if<AllReduceReplicated>(&op(a));
    if (sum == nullptr) return true;
    const auto& other = std::get<AllReduceReplicated>(op(b));
    return other.over == sum->over && parts_[at(a)].model[sum->block].name == parts_[at(b)].model[other.block].name;
  }

  /// Whom a send or receive names.
  [[nodiscard]] std::optional<int> peer(int rank) const {
    if (const auto* send = std::get_if<Send>(&op(rank))) return send->peer;
    if (const auto* receive = std::get_if<Receive>(&op(rank))) return receive->peer;
    return std::nullopt;
  }
  [[nodiscard]] bool matches(int rank, int other) const {
    if (other < 0 || other >= count() || ended(other)) return false;
    const auto* send = std::get_if<Send>(&op(rank));
    const auto* receive = std::get_if<Receive>(&op(send != nullptr ? other : rank));
    if (send == nullptr) send = std::get_if<Send>(&op(other));
    return send != nullptr && receive != nullptr && send->edge == receive->edge &&
           send->microbatch == receive->microbatch && send->phase == receive->phase && peer(other) == rank;
  }

  /// The ranks whose ops complete together with this one's; empty: it is blocked.
  [[nodiscard]] std::vector<int> partners(int rank) const {
    if (const std::vector<int> joint = joins(rank); !joint.empty())
      return std::all_of(joint.begin(), joint.end(), [&](int other) { return same_joint_op(rank, other); })
                 ? joint
                 : std::vector<int>{};
    const std::optional<int> other = peer(rank);
    if (!other) return {rank};
    return matches(rank, *other) ? std::vector<int>{rank, *other} : std::vector<int>{};
  }

  [[nodiscard]] std::string stands(int rank) const {
    std::vector<int> waits_for;
    if (const std::optional<int> other = peer(rank)) waits_for.push_back(*other);
    for (const int other : joins(rank))
      if (!same_joint_op(rank, other)) waits_for.push_back(other);
    std::vector<std::string> texts;
    for (const int other : waits_for)
      texts.push_back(other < 0 || other >= count() ? fmt::format("pipeline rank {}, which does not exist", other)
                      : ended(other)                ? fmt::format("pipeline rank {}, which has ended", other)
                                     : fmt::format("pipeline rank {}, which is at op {} `{}`", other, index(other),
                                                   print(op(other), parts_[at(other)].model)));
    return fmt::format("pipeline rank {} waits forever at op {} `{}` of step {} for {}", rank, index(rank),
                       print(op(rank), parts_[at(rank)].model), next_[at(rank)] / lists_[at(rank)].ops.size(),
                       fmt::join(texts, " and "));
  }

  std::span<const Schedule> lists_;
  std::span<const model::PipelinePart> parts_;
  std::vector<std::size_t> next_;
};

}  // namespace

std::vector<std::string> merge(std::span<const Schedule> lists, std::span<const model::PipelinePart> parts) {
  return Merge(lists, parts).run();
}

}  // namespace trireme::schedule
