// SPDX-License-Identifier: Apache-2.0
// The passes that place the gathering of parameters.
#include <algorithm>
#include <concepts>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/passes/passes.hpp"
#include "trireme/shard/layout.hpp"

namespace trireme::schedule {
namespace {

/// The ops that read a parameter block, in order, and the last compute op of each microbatch among them.
struct Uses {
  std::vector<int> ops;
  std::map<std::optional<Microbatch>, int> last;
};

std::map<ParamBlock, Uses> uses(const std::vector<Op>& ops, const model::Model& model) {
  std::map<ParamBlock, Uses> found;
  for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
    const Op& op = ops[static_cast<std::size_t>(i)];
    for (const ParamBlock block : parameters_read(op, model)) {
      found[block].ops.push_back(i);
      found[block].last[computes(op)] = i;
    }
  }
  return found;
}

/// Treatment of a block between its use at op `now` and its next use.
struct Between {
  bool keep = false;
  std::optional<int> group{};  ///< groups keep a copy while the block is resharded
};
/// The compute block of a forward, recompute, backward, or of a collective between its stages.
std::optional<Block> works_on(const Op& op) {
  return std::visit(
      [](const auto& verb) -> std::optional<Block> {
        if constexpr (requires {
                        { verb.block } -> std::same_as<const Block&>;
                      })
          return verb.block;
        else
          return std::nullopt;
      },
      op);
}

/// Whether all ops between two are of the block of the first: stages that read no parameters, collectives.
bool stays_in_block(const std::vector<Op>& ops, int now, int next) {
  const std::optional<Block> block = works_on(ops[static_cast<std::size_t>(now)]);
  return std::all_of(ops.begin() + now + 1, ops.begin() + next, [&](const Op& op) { return works_on(op) == block; });
}

Between between(const std::vector<Op>& ops, int now, const Uses& uses_of_block, ReshardPolicy policy) {
  const auto next = std::upper_bound(uses_of_block.ops.begin(), uses_of_block.ops.end(), now);
  if (next == uses_of_block.ops.end()) return {};
  if (stays_in_block(ops, now, *next)) return {.keep = true};
  // Regardless of the next reader's microbatch: relevant is whether this microbatch uses the block again.
  const bool comes_back = uses_of_block.last.at(computes(ops[static_cast<std::size_t>(now)])) > now;
  if (!comes_back) return {.keep = !policy.after_backward};
  return policy.after_forward ? Between{.group = policy.group} : Between{.keep = true};
}

/// Elements gathered for a parameter block, without padding for the number of ranks: the unit of prefetch limits.
std::int64_t unsharded_elements(const model::Model& model, ParamBlock block) {
  return shard::BlockLayout(model[block], 1).padded() / model[block].parts;
}

/// Blocks gathered ahead of their first reader while a compute op runs.
struct Ahead {
  std::int64_t bytes = 0;
  int blocks = 0;
};

class Prefetcher {
 public:
  Prefetcher(const model::Model& model, DType compute, std::optional<Bytes> limit)
      : model_(model), compute_(compute), limit_(limit) {}

  void append(const Op& op) {
    ops_.push_back(op);
    ahead_.emplace_back();
  }

  /// Inserts before the earliest compute op that the unshard may pass.
  void hoist(const Unshard& unshard) {
    const std::int64_t bytes = unsharded_elements(model_, unshard.block) * size_of(compute_);
    std::size_t best = ops_.size();
    for (std::size_t i = ops_.size(); i-- > 0;) {
      if (stops(ops_[i], unshard.block)) break;
      if (!computes(ops_[i])) continue;
      if (!fits(ahead_[i], bytes)) break;
      ahead_[i].bytes += bytes;
      ++ahead_[i].blocks;
      best = i;
    }
    ops_.insert(ops_.begin() + static_cast<std::ptrdiff_t>(best), unshard);
    ahead_.insert(ahead_.begin() + static_cast<std::ptrdiff_t>(best), Ahead{});
  }

  std::vector<Op> take() { return std::move(ops_); }

 private:
  [[nodiscard]] bool fits(const Ahead& ahead, std::int64_t bytes) const {
    return limit_ ? ahead.bytes + bytes <= limit_->value : ahead.blocks == 0;
  }
  /// The gather lane keeps its order; a block is not gathered before it was resharded or updated.
  static bool stops(const Op& op, ParamBlock block) {
    if (std::holds_alternative<Unshard>(op)) return true;
    if (const auto* reshard = std::get_if<Reshard>(&op)) return reshard->block == block;
    if (const auto* update = std::get_if<Update>(&op)) return update->block == block;
    return false;
  }

  const model::Model& model_;
  DType compute_;
  std::optional<Bytes> limit_;
  std::vector<Op> ops_;
  std::vector<Ahead> ahead_;
};

}  // namespace

Schedule insert_unshard(Schedule schedule, const model::Model& model, ReshardPolicy policy) {
  const auto used = uses(schedule.ops, model);
  std::set<ParamBlock> resident;
  std::map<ParamBlock, std::optional<int>> source;  // where the next gather of a block finds it
  std::vector<Op> ops;
  for (int i = 0; i < static_cast<int>(schedule.ops.size()); ++i) {
    const Op& op = schedule.ops[static_cast<std::size_t>(i)];
    const auto read = parameters_read(op, model);
    for (const ParamBlock block : read)
      if (resident.insert(block).second) ops.emplace_back(Unshard{.block = block, .slot = {}, .from = source[block]});
    ops.push_back(op);
    for (const ParamBlock block : read) {
      const Between next = between(schedule.ops, i, used.at(block), policy);
      if (next.keep) continue;
      resident.erase(block);
      source[block] = next.group;
      ops.emplace_back(Reshard{block, next.group});
    }
  }
  schedule.ops = std::move(ops);
  return schedule;
}

Schedule prefetch(Schedule schedule, const model::Model& model, DType compute, std::optional<Bytes> limit) {
  Prefetcher prefetcher(model, compute, limit);
  for (const Op& op : schedule.ops) {
    if (const auto* unshard = std::get_if<Unshard>(&op))
      prefetcher.hoist(*unshard);
    else
      prefetcher.append(op);
  }
  schedule.ops = prefetcher.take();
  return schedule;
}

}  // namespace trireme::schedule
