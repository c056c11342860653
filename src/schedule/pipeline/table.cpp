// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/pipeline/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "trireme/base/error.hpp"
#include "trireme/config/names.hpp"

namespace trireme::schedule {
namespace {

/// The actions of one rank; microbatches are taken in order, separately for every chunk and part.
class RankTable {
 public:
  explicit RankTable(int chunks) : next_(static_cast<std::size_t>(chunks)) {}

  void forward(int chunk) { add(chunk, ActionPart::forward); }
  void backward(int chunk) {
    add(chunk, ActionPart::backward);
    ++next_[static_cast<std::size_t>(chunk)].input;
  }
  /// I; its W waits.
  void input(int chunk) {
    const int m = next_[static_cast<std::size_t>(chunk)].input++;
    actions_.push_back({chunk, Microbatch{m}, ActionPart::input});
    waiting_.push_back({chunk, Microbatch{m}, ActionPart::weight});
  }
  /// The W that has waited longest, if any does.
  void weight() {
    if (waiting_.empty()) return;
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }
  /// The W of `chunk` that has waited longest.
  void weight(int chunk) {
    const auto found =
        std::find_if(waiting_.begin(), waiting_.end(), [&](const Action& action) { return action.chunk == chunk; });
    if (found == waiting_.end()) return;
    actions_.push_back(*found);
    waiting_.erase(found);
  }
  [[nodiscard]] int waiting() const { return static_cast<int>(waiting_.size()); }
  [[nodiscard]] int forwards(int chunk) const { return next_[static_cast<std::size_t>(chunk)].forward; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  struct Next {
    int forward = 0, input = 0;
  };
  void add(int chunk, ActionPart part) {
    Next& next = next_[static_cast<std::size_t>(chunk)];
    actions_.push_back({chunk, Microbatch{part == ActionPart::forward ? next.forward++ : next.input}, part});
  }
  std::vector<Next> next_;
  std::deque<Action> waiting_;
  std::vector<Action> actions_;
};

/// Rounds of `ranks` microbatches: each round's forwards of the rank's first chunk, of its second, ...; the backwards
/// from the last chunk. 1F1B is that with one chunk, and GPipe, which begins no backward before all forwards are done.
std::vector<Action> interleaved(const Pipeline& p, int rank) {
  const bool one = p.chunks == 1;
  const int all = p.chunks * p.microbatches;
  const int round = one ? p.microbatches : p.ranks;
  const int ahead =
      p.kind == PipelineKind::gpipe ? all - 1 : (one ? 1 : 2) * (p.ranks - 1 - rank) + (p.chunks - 1) * round;
  const int warmup = std::min(ahead, all);
  const bool zero_bubble = p.kind == PipelineKind::zb_h1;
  RankTable table(p.all_chunks());
  const auto chunk = [&](int local) { return local * p.ranks + rank; };
  for (int i = 0; i < all + warmup; ++i) {
    if (i < all) table.forward(chunk(i / round % p.chunks));
    if (i < warmup) continue;
    const int of = chunk(p.chunks - 1 - (i - warmup) / round % p.chunks);
    if (!zero_bubble) {
      table.backward(of);
      continue;
    }
    table.input(of);
    if (table.waiting() > rank) table.weight();
  }
  while (table.waiting() > 0) table.weight();
  return table.take();
}

/// Figure 5 of Qi et al. as PyTorch's ScheduleZBVZeroBubble has it.
std::vector<Action> zbv(const Pipeline& p, int rank) {
  const int first = rank, second = p.all_chunks() - 1 - rank;
  const int count = std::max(2 * p.ranks - 1, p.microbatches);  // the table is truncated to the microbatches
  RankTable table(p.all_chunks());
  const auto input_and_weight = [&](int chunk) {
    table.input(chunk);
    table.weight(chunk);
  };
  for (int i = 0; i < 2 * (p.ranks - rank) - 1; ++i) table.forward(first);
  for (int i = 0; i < rank; ++i) {
    table.forward(second);
    table.forward(first);
  }
  for (int i = 0; i < p.ranks - rank; ++i) {
    table.forward(second);
    input_and_weight(second);
  }
  while (table.forwards(second) < table.forwards(first) || table.forwards(first) < count) {
    if (table.forwards(first) < count) table.forward(first);
    input_and_weight(first);
    table.forward(second);
    input_and_weight(second);
  }
  for (int i = 0; i < rank; ++i) {
    table.input(first);
    table.input(second);
  }
  for (int i = 0; i < p.ranks - rank; ++i) {
    table.input(first);
    table.weight(first);
  }
  for (const int chunk : {second, first})
    for (int i = 0; i < count; ++i) table.weight(chunk);
  std::vector<Action> actions = table.take();
  std::erase_if(actions, [&](const Action& action) { return action.microbatch.value >= p.microbatches; });
  return actions;
}

/// The eight steps of DeepSeek's DualPipeV; the F and B that it overlaps follow each other.
std::vector<Action> dualpipev(const Pipeline& p, int rank) {
  const int first = rank, second = p.all_chunks() - 1 - rank, behind = p.ranks - 1 - rank;
  RankTable table(p.all_chunks());
  for (int i = 0; i < 2 * behind; ++i) table.forward(first);
  for (int i = 0; i <= rank; ++i) {
    table.forward(first);
    table.forward(second);
  }
  for (int i = 0; i < behind; ++i) {
    table.input(second);
    table.weight();
    table.forward(second);
  }
  for (int i = 0; i < p.microbatches - 2 * p.ranks + rank + 1; ++i) {
    table.forward(first);
    table.backward(second);
    table.forward(second);
    table.backward(first);
  }
  for (int i = 0; i < behind; ++i) {
    table.backward(second);
    table.forward(second);
    table.backward(first);
  }
  bool split = false;
  const auto either = [&](int chunk) { split ? table.input(chunk) : table.backward(chunk); };
  for (int i = 0; i <= rank; ++i) {
    split = split || (i == (rank + 1) / 2 && rank % 2 == 1);
    either(second);
    split = split || (i == (rank + 1) / 2 && rank % 2 == 0);
    either(first);
  }
  for (int i = 0; i < behind; ++i) {
    table.weight();
    either(first);
  }
  while (table.waiting() > 0) table.weight();
  return table.take();
}

}  // namespace

std::string to_text(const Action& action) {
  return fmt::format("{}{}{}", action.chunk, "FBIW"[static_cast<std::size_t>(action.part)], action.microbatch.value);
}

int Pipeline::rank_of(int chunk) const {
  if (!v_placement()) return chunk % ranks;
  return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
}

std::vector<int> Pipeline::chunks_of(int rank) const {
  std::vector<int> found;
  for (int chunk = 0; chunk < all_chunks(); ++chunk)
    if (rank_of(chunk) == rank) found.push_back(chunk);
  return found;
}

int default_chunks(PipelineKind kind) {
  return kind == PipelineKind::gpipe || kind == PipelineKind::one_f_one_b || kind == PipelineKind::zb_h1 ? 1 : 2;
}

std::vector<std::string> mistakes(const Pipeline& p) {
  std::vector<std::string> found;
  const std::string_view name = config::to_text(p.kind);
  const bool any = p.kind == PipelineKind::interleaved;
  if (!any && p.chunks != default_chunks(p.kind))
    found.push_back(fmt::format("pipeline.chunks: {} has {} on every rank, not {}", name,
                                default_chunks(p.kind) == 1 ? "1 chunk" : "2 chunks", p.chunks));
  if (any && p.chunks < 2)
    found.push_back("pipeline.chunks: interleaved requires at least 2 chunks on every rank; set 2, or use 1f1b");
  if (any && p.microbatches % p.ranks != 0) {
    const int below = p.microbatches / p.ranks * p.ranks;
    found.push_back(fmt::format(
        "pipeline.schedule: interleaved requires microbatches in groups of mesh.pipeline = {}, but a step has {}; "
        "{}{} work",
        p.ranks, p.microbatches, below > 0 ? fmt::format("{} or ", below) : "", below + p.ranks));
  }
  if (p.kind == PipelineKind::dualpipev && p.microbatches < 2 * p.ranks)
    found.push_back(fmt::format(
        "pipeline.schedule: dualpipev requires at least 2 x mesh.pipeline = {} microbatches, but a step has {}; use "
        "zbv, or a larger batch.global",
        2 * p.ranks, p.microbatches));
  return found;
}

ActionTable action_table(const Pipeline& p) {
  const std::vector<std::string> wrong = mistakes(p);
  invariant(wrong.empty(), wrong.empty() ? "" : wrong.front());
  ActionTable table;
  for (int rank = 0; rank < p.ranks; ++rank)
    table.push_back(p.kind == PipelineKind::zbv         ? zbv(p, rank)
                    : p.kind == PipelineKind::dualpipev ? dualpipev(p, rank)
                                                        : interleaved(p, rank));
  return table;
}

}  // namespace trireme::schedule
