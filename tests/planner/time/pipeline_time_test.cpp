// SPDX-License-Identifier: Apache-2.0
// Times of pipelines against slow oracles.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "planner/time/built.hpp"
#include "runs.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/planner/pipeline.hpp"

namespace trireme::planner {
namespace {

using config::PipelineKind;
using schedule::Lane;

config::RunConfig pipeline_run(PipelineKind kind, std::int64_t ranks, std::int64_t microbatches,
                               std::int64_t layers = 8) {
  config::RunConfig config = testing::small_run();
  config.model.layers = layers;
  config.mesh.pipeline = ranks;
  config.mesh.shard = 2;
  config.pipeline.schedule = kind;
  config.batch = {.global = 2 * microbatches, .micro = 1};
  config.sync = {.policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
  return config;
}

constexpr std::array every_kind{PipelineKind::gpipe, PipelineKind::one_f_one_b, PipelineKind::interleaved,
                                PipelineKind::zb_h1, PipelineKind::zbv,         PipelineKind::dualpipev};

/// Ends of all ops of three steps by their definition, until nothing changes: an op begins when what it needs has
/// ended, a send and its receive when both may, norms when all may; a receive ends with its send.
class ByDefinition {
 public:
  ByDefinition(const std::vector<RankStep>& ranks) : ranks_(ranks) {
    for (const RankStep& rank : ranks) end_.emplace_back(static_cast<std::size_t>(steps * size(rank)), 0.0);
    bool changes = true;
    while (changes) {
      changes = false;
      for (int r = 0; r < static_cast<int>(ranks.size()); ++r)
        for (int at = 0; at < steps * size(ranks[static_cast<std::size_t>(r)]); ++at)
          changes = settle(r, at) || changes;
    }
  }
  /// From the end of the second step's compute lane to that of the third's, on rank 0.
  [[nodiscard]] double step() const { return compute_end(steps - 1) - compute_end(steps - 2); }

 private:
  static constexpr int steps = 3;
  static int size(const RankStep& rank) { return static_cast<int>(rank.schedule.ops.size()); }
  [[nodiscard]] const schedule::Op& op(int r, int at) const {
    const RankStep& rank = ranks_[static_cast<std::size_t>(r)];
    return rank.schedule.ops[static_cast<std::size_t>(at % size(rank))];
  }
  /// When its own rank lets it begin.
  [[nodiscard]] double ready(int r, int at) const {
    const RankStep& rank = ranks_[static_cast<std::size_t>(r)];
    double time = 0;
    for (const schedule::Need& need : rank.needs) {
      const int from = at / size(rank) * size(rank) - need.distance * size(rank) + need.from;
      if (need.to == at % size(rank) && from >= 0)
        time = std::max(time, end_[static_cast<std::size_t>(r)][static_cast<std::size_t>(from)]);
    }
    return time;
  }
  /// The same op of the other ranks: (rank, place).
  [[nodiscard]] std::vector<std::pair<int, int>> others(int r, int at) const {
    std::vector<std::pair<int, int>> out;
    for (int other = 0; other < static_cast<int>(ranks_.size()); ++other) {
      const RankStep& rank = ranks_[static_cast<std::size_t>(other)];
      for (int i = 0; other != r && i < size(rank); ++i)
        if (meets(op(r, at), op(other, i)))
          out.emplace_back(other, at / size(ranks_[static_cast<std::size_t>(r)]) * size(rank) + i);
    }
    return out;
  }
  static bool meets(const schedule::Op& a, const schedule::Op& b) {
    if (std::holds_alternative<schedule::ClipNorm>(a)) return std::holds_alternative<schedule::ClipNorm>(b);
    const auto* send = std::get_if<schedule::Send>(&a);
    const auto* receive = std::get_if<schedule::Receive>(&b);
    if (send == nullptr) send = std::get_if<schedule::Send>(&b);
    if (receive == nullptr) receive = std::get_if<schedule::Receive>(&a);
    return send != nullptr && receive != nullptr &&
           std::tuple(send->edge, send->microbatch, send->phase) ==
               std::tuple(receive->edge, receive->microbatch, receive->phase);
  }
  bool settle(int r, int at) {
    const RankStep& rank = ranks_[static_cast<std::size_t>(r)];
    double begin = ready(r, at), seconds = rank.costs[static_cast<std::size_t>(at % size(rank))].seconds;
    for (const auto& [other, place] : others(r, at)) {
      begin = std::max(begin, ready(other, place));
      const RankStep& there = ranks_[static_cast<std::size_t>(other)];
      if (std::holds_alternative<schedule::Receive>(op(r, at)))
        seconds = there.costs[static_cast<std::size_t>(place % size(there))].seconds;
    }
    double& end = end_[static_cast<std::size_t>(r)][static_cast<std::size_t>(at)];
    return std::exchange(end, begin + seconds) != begin + seconds;
  }
  [[nodiscard]] double compute_end(int step) const {
    double last = 0;
    for (int i = 0; i < size(ranks_[0]); ++i)
      if (schedule::lane_of(ranks_[0].schedule.ops[static_cast<std::size_t>(i)]) == Lane::compute)
        last = std::max(last, end_[0][static_cast<std::size_t>(step * size(ranks_[0]) + i)]);
    return last;
  }

  const std::vector<RankStep>& ranks_;
  std::vector<std::vector<double>> end_;
};

TEST(PipelineTime, IsThatOfTheDefinitionForRandomCosts) {
  std::mt19937 random(5);
  for (const PipelineKind kind : {PipelineKind::one_f_one_b, PipelineKind::zbv}) {
    const config::RunConfig config = pipeline_run(kind, 2, 4, 4);
    const auto built = build_ranks(config, config::resolve(config, 4), load_machine("h100"), 4, false);
    std::vector<std::vector<Cost>> costs;
    std::vector<RankStep> ranks;
    for (const Built& rank : built) {
      costs.emplace_back();
      for (const schedule::Op& op : rank.schedule->ops)
        costs.back().push_back(
            {.seconds = std::holds_alternative<schedule::Receive>(op) ? 0.0 : static_cast<double>(random() % 9)});
    }
    for (std::size_t r = 0; r < built.size(); ++r) ranks.push_back({*built[r].schedule, *built[r].needs, costs[r]});
    EXPECT_NEAR(simulate(ranks, 0).front().seconds, ByDefinition(ranks).step(), 1e-9) << static_cast<int>(kind);
  }
}

/// All ops but the layers' are free, and all layers alike: what is idle is the schedule's own bubble.
TEST(PipelineTime, OfEqualChunksHasTheBubbleOfTheActionTable) {
  for (const PipelineKind kind : every_kind) {
    const config::RunConfig config = pipeline_run(kind, 4, 8);
    const auto built = build_ranks(config, config::resolve(config, 8), load_machine("h100"), 8, false);
    const schedule::Pipeline pipeline = pipeline_of(config, 8);
    const auto table = schedule::action_table(pipeline);
    const double unit = 8.0 / pipeline.all_chunks();  // layers of a chunk
    std::vector<std::vector<Cost>> costs;
    std::vector<RankStep> ranks;
    for (const Built& rank : built) {
      costs.emplace_back();
      for (const schedule::Op& op : rank.schedule->ops) {
        double seconds = 0;
        const auto part = [&](Block block) { return model::recomputes((*rank.model)[block]) ? 1.0 : 0.0; };
        if (const auto* f = std::get_if<schedule::Forward>(&op); f != nullptr && !f->stage) seconds = part(f->block);
        if (const auto* b = std::get_if<schedule::Backward>(&op); b != nullptr && !b->stage)
          seconds = (b->part == schedule::BackwardPart::whole ? 2 : 1) * part(b->block);
        // A split backward goes by stages: its parts are shared out evenly.
        const auto stages = [&](Block block) { return static_cast<double>((*rank.model)[block].stages.size()); };
        if (const auto* f = std::get_if<schedule::Forward>(&op); f != nullptr && f->stage)
          seconds = part(f->block) / stages(f->block);
        if (const auto* b = std::get_if<schedule::Backward>(&op); b != nullptr && b->stage)
          seconds = (b->part == schedule::BackwardPart::whole ? 2 : 1) * part(b->block) / stages(b->block);
        costs.back().push_back({.seconds = seconds});
      }
    }
    for (std::size_t r = 0; r < built.size(); ++r) ranks.push_back({*built[r].schedule, *built[r].needs, costs[r]});
    const double expected =
        unit *
        static_cast<double>(
            schedule::run_table(pipeline, table, schedule::ActionCosts(static_cast<std::size_t>(pipeline.all_chunks())))
                .end);
    for (const Timeline& timeline : simulate(ranks, 0)) {
      if (pipeline.v_placement()) {  // a rank sends one stream after the other, and waits until the peer takes it
        EXPECT_GE(timeline.seconds, expected - 1e-9) << static_cast<int>(kind);
        EXPECT_LE(timeline.seconds, 1.1 * expected) << static_cast<int>(kind);
      } else {
        EXPECT_NEAR(timeline.seconds, expected, 1e-9) << static_cast<int>(kind);
      }
    }
  }
}

TEST(PipelineTime, OfManyMicrobatchesIsExtrapolated) {
  const Machine machine = load_machine("h100");
  for (const PipelineKind kind : every_kind) {
    const config::RunConfig config = pipeline_run(kind, 2, 22);
    const Prediction p = predict(config, 4, machine);
    const config::Resolved mesh = config::resolve(config, 4);
    ASSERT_LT(few_microbatches(mesh, 4).more, 22);
    const auto built = build_ranks(config, mesh, machine, 22, false);
    std::vector<std::vector<Cost>> costs;
    std::vector<RankStep> ranks;
    for (const Built& rank : built)
      costs.push_back(Costs(costs_of(rank, config, mesh), machine, {}).of(*rank.schedule));
    for (std::size_t r = 0; r < built.size(); ++r) ranks.push_back({*built[r].schedule, *built[r].needs, costs[r]});
    const double whole = simulate(ranks, machine.contention).front().seconds + machine.step_seconds;
    EXPECT_NEAR(p.expected.seconds, whole, 0.01 * whole) << static_cast<int>(kind);
    const PipelinePlan plan = plan_pipeline(config, mesh);
    const Memory& most = plan.memory[static_cast<std::size_t>(plan.worst_rank())];
    EXPECT_EQ(p.memory.total(), most.total()) << static_cast<int>(kind);
    EXPECT_EQ(p.memory.activations, most.activations) << static_cast<int>(kind);
    // A search's are near: it must rank, not report.
    const Prediction quick = predict(config, 4, machine, {.percentiles = false, .few_layers = true});
    EXPECT_NEAR(quick.expected.seconds, whole, 0.05 * whole) << static_cast<int>(kind);
  }
}

TEST(PipelineTime, MoreMicrobatchesIdleLess) {
  const Machine machine = load_machine("h100");
  double before = 0;
  for (const std::int64_t microbatches : {4, 8, 16, 32}) {
    const Prediction p = predict(pipeline_run(PipelineKind::one_f_one_b, 4, microbatches), 8, machine);
    EXPECT_GT(p.tokens_per_second(), 1.05 * before) << microbatches;
    before = p.tokens_per_second();
  }
}

TEST(PipelineTime, OfOneRankIsShown) {
  const config::RunConfig config = pipeline_run(PipelineKind::one_f_one_b, 4, 8);
  const Machine machine = load_machine("h100");
  for (int rank = 0; rank < 4; ++rank) {
    const PredictedStep step = predict_ops(config, 8, machine, {.pipeline_rank = rank});
    EXPECT_EQ(step.pipeline_rank, rank);
    const bool head = step.model->compute_blocks.back().stages.back().kind == model::StageKind::head;
    EXPECT_EQ(head, rank == 3);
    EXPECT_FALSE(explain_time(step).empty());
    EXPECT_FALSE(predicted_trace(step).empty());
  }
}

}  // namespace
}  // namespace trireme::planner
