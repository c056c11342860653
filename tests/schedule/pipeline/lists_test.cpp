// SPDX-License-Identifier: Apache-2.0
// The lists of pipeline ranks: sound in all combinations, printed and read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "pipelines.hpp"
#include "trireme/config/names.hpp"
#include "trireme/schedule/needs.hpp"
#include "trireme/schedule/pipeline/verify.hpp"
#include "trireme/schedule/text.hpp"
#include "trireme/schedule/verify/verify.hpp"

namespace trireme::schedule {
namespace {

using ::testing::IsEmpty;
using testing::Lists;
using testing::lists_of;
using testing::pipeline;
using testing::pipelines;

TEST(PipelineLists, AreSoundWithEveryPolicy) {
  const std::vector<Policy> policies{
      {.sync = config::SyncPolicy::immediate},
      {.sync = config::SyncPolicy::deferred, .reshard = {.after_forward = false, .after_backward = false}},
      {.sync = config::SyncPolicy::immediate_all, .recompute = {.mode = config::Recompute::block}, .replicas = 2},
      {.sync = config::SyncPolicy::deferred, .reshard = {.group = 2}, .recompute = {.mode = config::Recompute::none}},
      {.recompute = {.mode = config::Recompute::block, .every = 2}, .offload = {.what = config::Offload::optimizer}},
      {.sync = config::SyncPolicy::deferred, .offload = {.what = config::Offload::parameters, .fraction = 0.5}},
      {.prefetch_bytes = Bytes{1LL << 40}},
  };
  const model::TensorPart tensor[] = {{}, {.ranks = 2, .sequence_parallel = true}, {.ranks = 2}};
  std::size_t i = 0;
  for (const Pipeline& p : pipelines({2, 3, 4}, {4, 6, 8}))
    for (const Policy& policy : policies) {
      const bool tied = ++i % 2 == 0;
      const Lists built = lists_of(p, policy, tied, tensor[i % 3]);  // throws where a list or all of them are unsound
      for (std::size_t rank = 0; rank < built.lists.size(); ++rank) {
        const model::Model& model = built.parts[rank].model;
        EXPECT_EQ(parse(print(built.lists[rank], model), model), built.lists[rank]);
      }
    }
}

TEST(PipelineLists, HaveNeedsThatOrderAllConflicts) {
  for (const Pipeline& p : pipelines({2, 3}, {4})) {
    const Lists built = lists_of(p);
    for (std::size_t rank = 0; rank < built.lists.size(); ++rank) {
      const model::Model& model = built.parts[rank].model;
      EXPECT_THAT(verify_needs(built.lists[rank], model, needs(built.lists[rank], model)), IsEmpty());
    }
  }
}

TEST(PipelineLists, EndAStepWhenItsMessagesHaveEnded) {
  for (const Pipeline& p : pipelines({2, 4}, {8})) {
    const Lists built = lists_of(p);
    for (std::size_t rank = 0; rank < built.lists.size(); ++rank) {
      const std::vector<Op>& ops = built.lists[rank].ops;
      int send = -1, norm = -1;
      for (int i = 0; i < static_cast<int>(ops.size()); ++i) {
        if (std::holds_alternative<Send>(ops[static_cast<std::size_t>(i)])) send = i;
        if (std::holds_alternative<ClipNorm>(ops[static_cast<std::size_t>(i)])) norm = i;
      }
      const std::vector<Need> edges = needs(built.lists[rank], built.parts[rank].model);
      EXPECT_TRUE(
          std::any_of(edges.begin(), edges.end(),
                      [&](const Need& need) { return need.from == send && need.to == norm && need.distance == 0; }))
          << config::to_text(p.kind) << ", rank " << rank;
    }
  }
}

TEST(PipelineLists, OfAForwardPassEveryEdgeOnce) {
  for (const Pipeline& p : pipelines({2, 3, 4}, {8}))
    for (const model::TensorPart& tensor : {model::TensorPart{}, model::TensorPart{.ranks = 2}}) {
      const Lists built = lists_of(p, {}, /*tied=*/true, tensor);
      // Throws if a list or all of them are unsound.
      std::vector<Schedule> forwards = build_pipeline_forward(built.parts, p, {});
      int sends = 0;
      for (const Schedule& list : forwards)
        for (const Op& op : list.ops) {
          sends += std::holds_alternative<Send>(op);
          EXPECT_FALSE(std::holds_alternative<Backward>(op));
        }
      EXPECT_EQ(sends, p.all_chunks() - 1 - (p.v_placement() ? 1 : 0));
      std::erase_if(forwards.back().ops, [](const Op& op) { return std::holds_alternative<Receive>(op); });
      EXPECT_FALSE(verify_pipeline(forwards, built.parts, p, Purpose::forward).empty());
    }
}

TEST(PipelineLists, NeedFewSlots) {
  for (const Pipeline& p : pipelines({2, 3, 4, 8}, {8, 16}))
    for (const Schedule& list : lists_of(p).lists) {
      int sends = 0, receives = 0;
      for (const Op& op : list.ops) {
        if (const auto* put = std::get_if<Put>(&op)) sends = std::max(sends, put->slot.index + 1);
        if (const auto* receive = std::get_if<Receive>(&op)) receives = std::max(receives, receive->slot.index + 1);
      }
      EXPECT_LE(sends, 2) << config::to_text(p.kind);
      // GPipe's forwards wait for nothing: they pile up before the slowest rank.
      EXPECT_LE(receives, p.kind == PipelineKind::gpipe ? p.microbatches : 5)
          << config::to_text(p.kind) << " of " << p.ranks;
    }
}

TEST(PipelineLists, SumATiedEmbeddingWithLoopPlacementOnly) {
  for (const Pipeline& p : pipelines({2, 4}, {8})) {
    const Lists built = lists_of(p, {}, /*tied=*/true);
    for (int rank = 0; rank < p.ranks; ++rank) {
      int sums = 0;
      for (const Op& op : built.lists[static_cast<std::size_t>(rank)].ops)
        if (const auto* sum = std::get_if<AllReduceReplicated>(&op)) sums += sum->over == Copies::pipeline;
      const bool holds = rank == 0 || rank == p.ranks - 1;
      EXPECT_EQ(sums, holds && !p.v_placement() ? 1 : 0) << config::to_text(p.kind) << " rank " << rank;
      Schedule without = built.lists[static_cast<std::size_t>(rank)];
      std::erase_if(without.ops, [](const Op& op) { return std::holds_alternative<AllReduceReplicated>(op); });
      const model::Model& model = built.parts[static_cast<std::size_t>(rank)].model;
      EXPECT_EQ(verify(without, model, 1).empty(), sums == 0) << "left out on all ranks, no rank waits for it";
    }
  }
}

}  // namespace
}  // namespace trireme::schedule
