// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/pipeline/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "schedule/pipeline/merge.hpp"
#include "trireme/schedule/access.hpp"
#include "trireme/schedule/concerns.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

/// Follows the stream of every microbatch through the chunks of one rank.
class ChunkStreams {
 public:
  ChunkStreams(const Schedule& list, const model::PipelinePart& part, const Pipeline& pipeline, int rank,
               Purpose purpose)
      : list_(list), part_(part), pipeline_(pipeline), rank_(rank), purpose_(purpose) {}

  std::vector<std::string> run() {
    for (index_ = 0; index_ < list_.ops.size(); ++index_) std::visit(*this, list_.ops[index_]);
    expect_all();
    return std::move(wrong_);
  }

  void operator()(const Forward& op) { enter(op, Phase::forward); }
  void operator()(const Backward& op) {
    if (op.part != BackwardPart::weight) enter(op, Phase::backward);
  }
  // The stage that they belong to is followed.
  void operator()(const Exchanged&) {}
  void operator()(const Recompute&) {}
  void operator()(const Rebuild&) {}
  void operator()(const OffloadActivations&) {}
  void operator()(const DropActivations&) {}
  void operator()(const AllocateActivations&) {}
  void operator()(const ReloadActivations&) {}

  void operator()(const Put& op) {
    if (peer_of(op, /*sends=*/true) < 0) return complain("puts what this rank does not send");
    if (at_[op.microbatch] != At{op.edge, op.phase})
      complain(fmt::format("puts e{}, but m{} is {}", op.edge.value, op.microbatch.value, where(op.microbatch)));
    at_.erase(op.microbatch);
  }
  void operator()(const Take& op) {
    if (peer_of(op, /*sends=*/false) < 0) return complain("takes what this rank does not receive");
    if (const auto held = at_.find(op.microbatch); held != at_.end() && held->second)
      complain(fmt::format("overwrites the stream of m{}, which is {}", op.microbatch.value, where(op.microbatch)));
    at_[op.microbatch] = At{op.edge, op.phase};
    if (!taken_.insert({op.edge, op.microbatch, op.phase}).second) complain("takes it a second time");
  }
  void operator()(const Send& op) {
    if (const int peer = peer_of(op, /*sends=*/true); peer != op.peer)
      complain(peer < 0 ? "sends what this rank does not send" : fmt::format("belongs to pipeline rank {}", peer));
    if (!sent_.insert({op.edge, op.microbatch, op.phase}).second) complain("sends it a second time");
  }
  void operator()(const Receive& op) {
    if (const int peer = peer_of(op, /*sends=*/false); peer != op.peer)
      complain(peer < 0 ? "receives what this rank does not receive"
                        : fmt::format("comes from pipeline rank {}", peer));
  }
  template <class Other>
  requires(!of_microbatch<Other>) void operator()(const Other&) {}

 private:
  /// The edge that the stream has reached.
  using At = std::pair<Edge, Phase>;

  /// The rank at the other end; -1 if this one is not at the end that it must be.
  template <class Verb>
  [[nodiscard]] int peer_of(const Verb& op, bool sends) const {
    const int e = op.edge.value;
    if (e < 0 || e + 1 >= part_.all_chunks) return -1;
    const int before = pipeline_.rank_of(e), behind = pipeline_.rank_of(e + 1);
    const int from = op.phase == Phase::forward ? before : behind, to = op.phase == Phase::forward ? behind : before;
    if (from == to || (sends ? from : to) != rank_) return -1;
    return sends ? to : from;
  }

  /// A forward or backward: at a chunk's begin it reads the edge before it, at its end it leaves the one behind it.
  template <class Compute>
  void enter(const Compute& op, Phase phase) {
    const auto chunk = std::find_if(part_.chunks.begin(), part_.chunks.end(), [&](const model::HeldChunk& held) {
      return held.first <= op.block && op.block < held.last;
    });
    if (chunk == part_.chunks.end()) return complain("computes a block that no chunk of this rank has");
    const StageRange range = stages_of(part_.model[op.block], op.stage);
    const bool first = op.block == chunk->first && range.first == 0;
    const bool last =
        op.block.value + 1 == chunk->last.value && range.last == static_cast<int>(part_.model[op.block].stages.size());
    const bool forward = phase == Phase::forward;
    const int c = chunk->chunk;
    std::optional<At>& at = at_[op.microbatch];
    const bool begins = forward ? first && c > 0 : last && c + 1 < part_.all_chunks;
    const At source{Edge{forward ? c - 1 : c}, phase};
    if (begins && at != source)
      complain(fmt::format("reads e{} m{}{}, but m{} is {}", source.first.value, op.microbatch.value,
                           forward ? "" : " gradient", op.microbatch.value, where(op.microbatch)));
    if (!begins && at)
      complain(fmt::format("overwrites the stream of m{}, which is {}", op.microbatch.value, where(op.microbatch)));
    at.reset();
    const bool ends = forward ? last && c + 1 < part_.all_chunks : first && c > 0;
    if (ends) at = At{Edge{forward ? c : c - 1}, phase};
  }

  [[nodiscard]] std::string where(Microbatch m) const {
    const auto at = at_.find(m);
    if (at == at_.end() || !at->second) return "at no edge";
    return fmt::format("at e{}{}", at->second->first.value, at->second->second == Phase::forward ? "" : " gradient");
  }

  /// Expects every transfer of the placement: sends and takes are checked here, receives in the merge.
  void expect_all() {
    for (int e = 0; e + 1 < part_.all_chunks; ++e)
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        if (phase == Phase::backward && purpose_ == Purpose::forward) continue;
        const Put edge{Edge{e}, {}, phase, {}};
        const bool sends = peer_of(edge, true) >= 0, takes = peer_of(edge, false) >= 0;
        for (int m = 0; m < list_.microbatches && (sends || takes); ++m)
          if (!(sends ? sent_ : taken_).contains({Edge{e}, Microbatch{m}, phase}))
            wrong_.push_back(fmt::format("pipeline rank {}: e{} m{}{} is never {}", rank_, e, m,
                                         phase == Phase::backward ? " gradient" : "", sends ? "sent" : "taken"));
      }
    for (const auto& [m, at] : at_)
      if (at)
        wrong_.push_back(fmt::format("pipeline rank {}: the stream of m{} ends {}, unread", rank_, m.value, where(m)));
  }
  void complain(const std::string& what) {
    wrong_.push_back(
        fmt::format("pipeline rank {} op {} `{}`: {}", rank_, index_, print(list_.ops[index_], part_.model), what));
  }

  const Schedule& list_;
  const model::PipelinePart& part_;
  const Pipeline& pipeline_;
  int rank_;
  Purpose purpose_;
  std::size_t index_ = 0;
  std::map<Microbatch, std::optional<At>> at_;
  std::set<std::tuple<Edge, Microbatch, Phase>> sent_, taken_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify_pipeline(std::span<const Schedule> lists, std::span<const model::PipelinePart> parts,
                                         const Pipeline& pipeline, Purpose purpose, Complete complete) {
  if (static_cast<int>(lists.size()) != pipeline.ranks || lists.size() != parts.size())
    return {fmt::format("{} lists for {} pipeline ranks", lists.size(), pipeline.ranks)};
  std::vector<std::string> wrong;
  for (int rank = 0; rank < pipeline.ranks; ++rank) {
    const Schedule& list = lists[static_cast<std::size_t>(rank)];
    const model::PipelinePart& part = parts[static_cast<std::size_t>(rank)];
    if (list.microbatches != lists.front().microbatches)
      wrong.push_back(fmt::format("pipeline rank {} has {} microbatches, pipeline rank 0 has {}", rank,
                                  list.microbatches, lists.front().microbatches));
    for (const std::string& what : verify_transfers(list, part.model, complete))
      wrong.push_back(fmt::format("pipeline rank {} {}", rank, what));
    for (std::string& what : ChunkStreams(list, part, pipeline, rank, purpose).run()) wrong.push_back(std::move(what));
  }
  for (std::string& what : merge(lists, parts)) wrong.push_back(std::move(what));
  return wrong;
}

}  // namespace trireme::schedule
