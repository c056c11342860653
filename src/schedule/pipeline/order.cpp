// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/pipeline/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

/// When the forward and the input's gradient of every chunk and microbatch end; -1: not yet.
class Ends {
 public:
  explicit Ends(const Pipeline& p)
      : microbatches_(p.microbatches),
        chunks_(p.all_chunks()),
        forward_(static_cast<std::size_t>(chunks_ * microbatches_), -1),
        input_(forward_) {}

  void note(const Action& action, std::int64_t end) {
    if (action.part == ActionPart::forward) forward_[at(action.chunk, action.microbatch)] = end;
    if (action.part == ActionPart::backward || action.part == ActionPart::input)
      input_[at(action.chunk, action.microbatch)] = end;
  }
  /// Time at which the action's inputs are available; nothing: not computed yet.
  [[nodiscard]] std::optional<std::int64_t> ready(const Action& action) const {
    const auto known = [](std::int64_t end) { return end < 0 ? std::nullopt : std::optional(end); };
    const auto [chunk, m, part] = action;
    if (part == ActionPart::forward) return chunk == 0 ? 0 : known(forward_[at(chunk - 1, m)]);
    if (part == ActionPart::weight) return known(input_[at(chunk, m)]);
    const auto own = known(forward_[at(chunk, m)]);
    if (!own || chunk + 1 == chunks_) return own;
    const auto next = known(input_[at(chunk + 1, m)]);
    return next ? std::optional(std::max(*own, *next)) : std::nullopt;
  }

 private:
  [[nodiscard]] std::size_t at(int chunk, Microbatch m) const {
    return static_cast<std::size_t>(std::int64_t{chunk} * microbatches_ + m.value);
  }
  int microbatches_, chunks_;
  std::vector<std::int64_t> forward_, input_;
};

std::string who_waits(const ActionTable& table, const TableTimes& times) {
  std::string text = "the table hangs:";
  for (std::size_t rank = 0; rank < table.size(); ++rank)
    if (const std::size_t done = times.ranks[rank].size(); done < table[rank].size())
      text += fmt::format(" pipeline rank {} waits with {};", rank, to_text(table[rank][done]));
  return text;
}

}  // namespace

std::int64_t ChunkCost::of(ActionPart part) const {
  switch (part) {
    case ActionPart::forward: return forward;
    case ActionPart::backward: return input + weight;
    case ActionPart::input: return input;
    case ActionPart::weight: return weight;
  }
  throw BugError("ChunkCost: unknown part");
}

std::int64_t TableTimes::idle(int rank) const {
  std::int64_t busy = 0;
  for (const ActionTime& time : ranks[static_cast<std::size_t>(rank)]) busy += time.end - time.begin;
  return end - busy;
}

double TableTimes::bubble() const {
  double idle_in_all = 0;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) idle_in_all += static_cast<double>(idle(rank));
  return idle_in_all / static_cast<double>(ranks.size()) / static_cast<double>(end);
}

TableTimes run_table(const Pipeline& p, const ActionTable& table, const ActionCosts& costs) {
  invariant(static_cast<int>(costs.size()) == p.all_chunks(), "every chunk has a cost");
  TableTimes out{.ranks = std::vector<std::vector<ActionTime>>(table.size())};
  Ends ends(p);
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::size_t rank = 0; rank < table.size(); ++rank) {
      std::vector<ActionTime>& done = out.ranks[rank];
      while (done.size() < table[rank].size()) {
        const Action& action = table[rank][done.size()];
        const auto ready = ends.ready(action);
        if (!ready) break;
        const std::int64_t begin = std::max(*ready, done.empty() ? 0 : done.back().end);
        const std::int64_t end = begin + costs[static_cast<std::size_t>(action.chunk)].of(action.part);
        ends.note(action, end);
        done.push_back({action, begin, end});
        out.end = std::max(out.end, end);
        moved = true;
      }
    }
  }
  for (std::size_t rank = 0; rank < table.size(); ++rank)
    invariant(out.ranks[rank].size() == table[rank].size(), who_waits(table, out));
  return out;
}

std::optional<double> unit_bubble(const Pipeline& p) {
  const bool zero_bubble = p.splits_backward();
  const int enough = p.kind == PipelineKind::zbv ? 2 * p.ranks - 1 : p.kind == PipelineKind::zb_h1 ? p.ranks : 1;
  if (p.microbatches < enough) return std::nullopt;
  const double idle = (zero_bubble ? 1 : 3) * (p.ranks - 1);
  return idle / (idle + 3.0 * p.chunks * p.microbatches);
}

std::vector<RankOrder> pipeline_order(const Pipeline& p, const ActionCosts& costs) {
  const TableTimes times = run_table(p, action_table(p), costs);
  struct Entry {
    std::int64_t time;
    int compute;  ///< transfers first
    int rank;
    std::variant<Action, Transfer> what;
  };
  std::vector<Entry> all;
  for (int rank = 0; rank < p.ranks; ++rank)
    for (const ActionTime& ran : times.ranks[static_cast<std::size_t>(rank)]) {
      const auto [chunk, m, part] = ran.action;
      all.push_back({ran.begin, 1, rank, ran.action});
      if (part == ActionPart::weight) continue;
      const bool forward = part == ActionPart::forward;
      const int next = forward ? chunk + 1 : chunk - 1;
      if (next < 0 || next == p.all_chunks() || p.rank_of(next) == rank) continue;
      all.push_back({ran.end, 0, rank,
                     Transfer{Edge{std::min(chunk, next)}, m, forward ? Phase::forward : Phase::backward, rank,
                              p.rank_of(next)}});
    }
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.time, a.compute, a.rank) < std::tie(b.time, b.compute, b.rank);
  });
  std::vector<RankOrder> orders(static_cast<std::size_t>(p.ranks));
  for (const Entry& entry : all) {
    orders[static_cast<std::size_t>(entry.rank)].push_back(entry.what);
    if (const auto* transfer = std::get_if<Transfer>(&entry.what))
      orders[static_cast<std::size_t>(transfer->to)].push_back(entry.what);
  }
  return orders;
}

std::vector<RankOrder> forward_pipeline_order(const Pipeline& p) {
  std::vector<RankOrder> orders(static_cast<std::size_t>(p.ranks));
  const auto of = [&](int rank) -> RankOrder& { return orders[static_cast<std::size_t>(rank)]; };
  for (int chunk = 0; chunk < p.all_chunks(); ++chunk) {
    const int rank = p.rank_of(chunk);
    of(rank).emplace_back(Action{chunk, Microbatch{0}, ActionPart::forward});
    if (chunk + 1 == p.all_chunks() || p.rank_of(chunk + 1) == rank) continue;
    const Transfer transfer{Edge{chunk}, Microbatch{0}, Phase::forward, rank, p.rank_of(chunk + 1)};
    of(rank).emplace_back(transfer);
    of(transfer.to).emplace_back(transfer);
  }
  return orders;
}

}  // namespace trireme::schedule
