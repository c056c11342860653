// SPDX-License-Identifier: Apache-2.0
#include "trireme/schedule/pipeline/build.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "schedule/passes/append.hpp"
#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/schedule/pipeline/verify.hpp"

namespace trireme::schedule {
namespace {

/// Writes one rank's actions and transfers as ops.
class Expansion {
 public:
  Expansion(const model::PipelinePart& part, const Pipeline& pipeline, int rank)
      : part_(part), pipeline_(pipeline), rank_(rank) {}

  void operator()(const Action& action) {
    const auto [chunk, m, what] = action;
    if (what == ActionPart::forward) {
      if (chunk > 0) take(Edge{chunk - 1}, m, Phase::forward, chunk - 1);
    } else if (what != ActionPart::weight && chunk + 1 < pipeline_.all_chunks()) {
      take(Edge{chunk}, m, Phase::backward, chunk + 1);
    }
    const auto held = std::find_if(part_.chunks.begin(), part_.chunks.end(),
                                   [c = chunk](const model::HeldChunk& of) { return of.chunk == c; });
    invariant(held != part_.chunks.end(), fmt::format("pipeline rank {} does not hold {}", rank_, to_text(action)));
    if (what == ActionPart::forward) {
      for (Block b = held->first; b < held->last; ++b.value)
        for (int s = 0; s < stages(b); ++s) append_forward(ops_, part_.model, b, Stage{s}, m);
      return;
    }
    for (Block b{held->last.value - 1}; b >= held->first; --b.value)
      for (int s = stages(b) - 1; s >= 0; --s) backward(what, b, Stage{s}, m);
  }
  void operator()(const Transfer& transfer) {
    const auto [edge, m, phase, from, to] = transfer;
    if (from == rank_) {
      ops_.emplace_back(Put{edge, m, phase, {}});
      ops_.emplace_back(Send{edge, m, phase, {}, to});
    } else {
      ops_.emplace_back(Receive{edge, m, phase, {}, from});
    }
  }
  std::vector<Op> finish() { return std::move(ops_); }

 private:
  [[nodiscard]] int stages(Block block) const { return static_cast<int>(part_.model[block].stages.size()); }
  void take(Edge edge, Microbatch m, Phase phase, int from_chunk) {
    if (pipeline_.rank_of(from_chunk) != rank_) ops_.emplace_back(Take{edge, m, phase, {}});
  }
  void backward(ActionPart what, Block b, Stage s, Microbatch m) {
    const bool splits = model::recomputes(part_.model[b]);
    if (what == ActionPart::weight) {
      if (splits) append_backward_weight(ops_, part_.model, b, s, m);
    } else if (what == ActionPart::input && splits) {
      append_backward_input(ops_, part_.model, b, s, m);
    } else {
      append_backward(ops_, part_.model, b, s, m);
    }
  }

  const model::PipelinePart& part_;
  const Pipeline& pipeline_;
  int rank_;
  std::vector<Op> ops_;
};

}  // namespace

std::vector<model::PipelinePart> pipeline_parts(const model::Model& whole, std::span<const model::Chunk> chunks,
                                                const Pipeline& pipeline) {
  std::vector<model::PipelinePart> parts;
  for (int rank = 0; rank < pipeline.ranks; ++rank)
    parts.push_back(model::take(whole, chunks, pipeline.chunks_of(rank)));
  return parts;
}

ActionCosts flop_costs(const model::Model& whole, std::span<const model::Chunk> chunks, std::int64_t seq_len) {
  ActionCosts costs;
  for (const model::Chunk& chunk : chunks) {
    double forward = 0, input = 0, weight = 0;
    for (Block b = chunk.first; b < chunk.last; ++b.value) {
      const double all = model::block_flops(whole, b, seq_len), in_products = model::block_flops(whole, b, 0);
      forward += all / 3;
      weight += model::recomputes(whole[b]) ? in_products / 3 : 0;
      input += all - all / 3 - (model::recomputes(whole[b]) ? in_products / 3 : 0);
    }
    const auto whole_number = [](double flops) { return std::max<std::int64_t>(1, std::llround(flops)); };
    costs.push_back({whole_number(forward), whole_number(input), whole_number(weight)});
  }
  return costs;
}

Schedule compute_order(const model::PipelinePart& part, const Pipeline& pipeline, const RankOrder& order) {
  Expansion expansion(part, pipeline, pipeline.rank_of(part.chunks.front().chunk));
  for (const auto& entry : order) std::visit(expansion, entry);
  return {.microbatches = pipeline.microbatches, .ops = expansion.finish()};
}

namespace {

void check(const std::vector<Schedule>& lists, const std::vector<model::PipelinePart>& parts, const Pipeline& pipeline,
           Purpose purpose) {
  const std::vector<std::string> wrong = verify_pipeline(lists, parts, pipeline, purpose);
  invariant(wrong.empty(), fmt::format("the lists of the pipeline are invalid:\n  {}", fmt::join(wrong, "\n  ")));
}

}  // namespace

std::vector<Schedule> build_pipeline(const std::vector<model::PipelinePart>& parts, const Pipeline& pipeline,
                                     const ActionCosts& costs, const Policy& policy) {
  const std::vector<RankOrder> orders = pipeline_order(pipeline, costs);
  std::vector<Schedule> lists;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    lists.push_back(build_step(parts[rank].model, compute_order(parts[rank], pipeline, orders[rank]), policy));
  check(lists, parts, pipeline, Purpose::train);
  return lists;
}

std::vector<Schedule> build_pipeline_forward(const std::vector<model::PipelinePart>& parts, const Pipeline& pipeline,
                                             const Policy& policy) {
  Pipeline once = pipeline;
  once.microbatches = 1;
  const std::vector<RankOrder> orders = forward_pipeline_order(once);
  std::vector<Schedule> lists;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    lists.push_back(build_forward(parts[rank].model, compute_order(parts[rank], once, orders[rank]), policy));
  check(lists, parts, once, Purpose::forward);
  return lists;
}

std::vector<Schedule> build_pipeline_unverified(const std::vector<model::PipelinePart>& parts, const Pipeline& pipeline,
                                                const ActionCosts& costs, const Policy& policy) {
  const std::vector<RankOrder> orders = pipeline_order(pipeline, costs);
  std::vector<Schedule> lists;
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    lists.push_back(
        build_step_unverified(parts[rank].model, compute_order(parts[rank], pipeline, orders[rank]), policy));
  return lists;
}

}  // namespace trireme::schedule
