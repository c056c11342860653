// SPDX-License-Identifier: Apache-2.0
// Plans of runs with a pipeline: bytes and memory by replay of every rank's list.
#include "trireme/planner/pipeline.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../schedule/pipeline/in_flight.hpp"
#include "trireme/base/error.hpp"
#include "trireme/config/names.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

config::RunConfig run_file(const std::vector<std::string>& overrides) {
  return config::parse_run_file(R"(
[run]
name = "p"
[model]
vocab_size = 256
hidden_size = 64
intermediate_size = 128
layers = 8
heads = 4
[data]
train = "t.bin"
seq_len = 32
[batch]
global = 8
micro = 1
[precision]
compute = "fp32"
[optimizer]
lr = 1e-3
[train]
steps = 1
[mesh]
pipeline = 2
)",
                                "p.toml", overrides);
}

PipelinePlan plan_of(const std::vector<std::string>& overrides, int ranks) {
  const config::RunConfig config = run_file(overrides);
  return plan_pipeline(config, config::resolve(config, ranks));
}

TEST(PipelinePlan, SendsTheStreamOverEveryEdgeAndMicrobatch) {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv", "dualpipev"})
    for (const int tensor : {1, 2}) {
      const PipelinePlan plan =
          plan_of({"pipeline.schedule=\"" + schedule + "\"", fmt::format("mesh.tensor={}", tensor)}, 2 * tensor);
      const std::int64_t stream = 32 * 64 * 4 / tensor;
      for (int rank = 0; rank < 2; ++rank) {
        int edges = 0;  // forward and backward, that this rank sends over
        for (int e = 0; e + 1 < plan.pipeline.all_chunks(); ++e) {
          const int before = plan.pipeline.rank_of(e), behind = plan.pipeline.rank_of(e + 1);
          if (before != behind) edges += (before == rank) + (behind == rank);
        }
        const Moved sent = plan.traffic[static_cast<std::size_t>(rank)].at("pipeline").at("send");
        EXPECT_EQ(sent, (Moved{Bytes{8 * stream * edges}, 8 * edges})) << schedule << ", rank " << rank;
        EXPECT_GT(plan.memory[static_cast<std::size_t>(rank)].communication.value, 0);
        EXPECT_EQ(plan.memory[static_cast<std::size_t>(rank)].communication.value % stream, 0);
      }
    }
}

TEST(PipelinePlan, DividesSequencesByBothMethodsUnderEverySchedule) {
  for (const std::string schedule : {"1f1b", "interleaved", "zb_h1", "zbv", "dualpipev"}) {
    const std::vector<std::string> divided{"pipeline.schedule=\"" + schedule + "\"", "mesh.context=2"};
    std::vector<std::string> by_heads = divided;
    by_heads.emplace_back("context.method=heads");
    const PipelinePlan keys = plan_of(divided, 4), heads = plan_of(by_heads, 4);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const std::int64_t layers = 4, tokens = 32 / 2, value = 4;
      const Moved exchanged = heads.traffic[rank].at("context").at("all_to_all");
      EXPECT_EQ(exchanged, (Moved{Bytes{8 * layers * 2 * tokens * 4 * 64 * value / 2}, 8 * layers * 4})) << schedule;
      EXPECT_EQ(keys.traffic[rank].at("context").at("all_gather").calls, 8 * layers * 2) << schedule;
      // Attention's output twice, in each layer and microbatch in flight; where weights wait, one of them is gone.
      EXPECT_GT(heads.memory[rank].activations, keys.memory[rank].activations) << schedule;
    }
  }
}

TEST(PipelinePlan, CountsACommunicatorForEveryNeighbourAndDirection) {
  const auto communicators = [](const std::string& schedule, int ranks, bool tied) {
    std::vector<int> by_rank;
    for (const Memory& memory :
         plan_of({"device.type=cuda", "pipeline.schedule=" + schedule, fmt::format("mesh.pipeline={}", ranks),
                  fmt::format("model.tie_embeddings={}", tied), "batch.global=8", "batch.micro=1", "model.layers=8"},
                 ranks)
             .memory)
      by_rank.push_back(memory.nccl_communicators);
    return by_rank;
  };
  EXPECT_EQ(communicators("1f1b", 2, false), (std::vector{2, 2})) << "one each way";
  EXPECT_EQ(communicators("1f1b", 4, false), (std::vector{2, 4, 4, 2}));
  EXPECT_EQ(communicators("1f1b", 4, true), (std::vector{3, 4, 4, 3})) << "and the tied embedding's";
  EXPECT_EQ(communicators("interleaved", 4, false), (std::vector{4, 4, 4, 4})) << "the last sends to the first";
  EXPECT_EQ(communicators("zbv", 4, true), (std::vector{2, 4, 4, 2})) << "one rank has both ends";
}

TEST(PipelinePlan, HoldsTheActivationsThatTheScheduleHasInFlight) {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved"}) {
    const PipelinePlan plan = plan_of({"pipeline.schedule=\"" + schedule + "\""}, 2);
    const auto saved = [&](model::StageKind kind) {
      return model::saved_bytes(kind, plan.whole.sizes, 32, DType::fp32).value;
    };
    const std::int64_t layer = saved(model::StageKind::attention) + saved(model::StageKind::mlp);
    // Rank 0 has equal chunks of layers and the embedding, which saves nothing.
    const auto& held = plan.parts[0].chunks.front();
    const int layers = held.last.value - held.first.value - 1;
    EXPECT_EQ(plan.memory[0].activations.value, layer * layers * schedule::testing::most_in_flight(plan.pipeline, 0))
        << schedule;
  }
}

TEST(PipelinePlan, HoldsWhatWaitsForWeightGradients) {
  const PipelinePlan whole = plan_of({}, 2), split = plan_of({"pipeline.schedule=\"zb_h1\""}, 2);
  EXPECT_GT(split.memory[1].activations, whole.memory[1].activations);
  // The last rank: its first I runs while one microbatch is saved; then the next one's F while the other waits for W.
  const auto stage = [&](model::StageKind kind) {
    std::int64_t pending = 0;
    for (const Bytes bytes :
         model::pending_tensors(kind, split.whole.sizes, 32, DType::fp32, model::Keep::products).tensors)
      pending += bytes.value;
    return std::pair{model::saved_bytes(kind, split.whole.sizes, 32, DType::fp32).value, pending};
  };
  const auto attention = stage(model::StageKind::attention), mlp = stage(model::StageKind::mlp);
  const std::int64_t head = model::saved_bytes(model::StageKind::head, split.whole.sizes, 32, DType::fp32).value;
  const int layers = split.parts[1].model.blocks() - 1;
  // Two microbatches: one waits for W, the other is saved and turns into what waits, stage by stage from the last on.
  const std::int64_t pending = layers * (attention.second + mlp.second);
  const std::int64_t saved = layers * (attention.first + mlp.first);
  EXPECT_GE(split.memory[1].activations.value, pending + saved + head);
  EXPECT_LE(split.memory[1].activations.value, 2 * pending + mlp.first);
}

TEST(PipelinePlan, OfOneRankInAllHoldsWhatTheRunWithoutPipelineHolds) {
  const config::RunConfig config = run_file({"mesh.pipeline=1"});
  const config::Resolved mesh = config::resolve(config, 2);
  const PipelinePlan plan = plan_pipeline(config, mesh);
  const auto step = schedule::build_step(plan.whole, mesh.accumulation, schedule::policy_of(config, mesh));
  EXPECT_EQ(schedule::print(plan.steps.at(0), plan.whole), schedule::print(step, plan.whole));
}

TEST(PipelinePlan, OfAFewMicrobatchesHasTheBytesOfAll) {
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv", "dualpipev"})
    for (const std::string policy : {"immediate", "deferred"}) {
      const config::RunConfig config = run_file({"pipeline.schedule=" + schedule, "sync.policy=" + policy,
                                                 "batch.global=88", "device.type=cuda", "mesh.pipeline=4"});
      const config::Resolved mesh = config::resolve(config, 8);
      ASSERT_EQ(mesh.accumulation, 44);
      const PipelinePlan all = plan_pipeline(config, mesh), few = bytes_of_pipeline(config, mesh);
      EXPECT_EQ(few.traffic, all.traffic) << schedule << " " << policy;
      EXPECT_EQ(bubble_text(few), bubble_text(all)) << schedule;
      ASSERT_EQ(few.memory.size(), all.memory.size());
      for (std::size_t rank = 0; rank < all.memory.size(); ++rank) {
        EXPECT_EQ(few.memory[rank].total(), all.memory[rank].total()) << schedule << " " << policy << " " << rank;
        EXPECT_EQ(few.memory[rank].activations, all.memory[rank].activations) << schedule << " " << rank;
        EXPECT_EQ(few.memory[rank].by_pipeline_rank.size(), 4U);
      }
      if (schedule != "gpipe") {
        EXPECT_LT(few.steps[0].ops.size(), all.steps[0].ops.size()) << schedule;
      }
    }
}

TEST(PipelinePlan, RefusesWhatDoesNotFit) {
  const auto refusal = [](const std::vector<std::string>& overrides, int ranks = 2) -> std::string {
    try {
      (void)plan_of(overrides, ranks);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({}, 3), HasSubstr("mesh.pipeline 2 = 2 does not divide the 3 ranks"));
  EXPECT_THAT(refusal({"mesh.pipeline=9"}, 9), HasSubstr("a pipeline of 9 chunks for 8 layers"));
  EXPECT_THAT(refusal({"pipeline.layers=[3, 4]"}), HasSubstr("7 layers in 2 chunks, of a model of 8"));
  EXPECT_THAT(refusal({"pipeline.layers=[3, 4, 1]"}), HasSubstr("3 entries for mesh.pipeline 2 x pipeline.chunks 1"));
  EXPECT_THAT(refusal({"pipeline.chunks=2"}), HasSubstr("1f1b has 1 chunk on every rank, not 2"));
  EXPECT_THAT(refusal({"pipeline.schedule=\"interleaved\"", "batch.global=7"}), HasSubstr("6 or 8 work"));
  EXPECT_THAT(refusal({"memory.activation_offload=true"}), HasSubstr("not available with mesh.pipeline > 1"));
  EXPECT_THAT(refusal({"mesh.pipeline=1", "pipeline.chunks=2"}), HasSubstr("requires mesh.pipeline > 1"));
  EXPECT_EQ(refusal({"pipeline.layers=[3, 5]"}), "");
}

TEST(PipelinePlan, IsTrainedWithoutWhatIsNotAvailableYet) {
  EXPECT_NO_THROW(config::require_trainable(run_file({"mesh.pipeline=1"})));
  for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zbv", "dualpipev"})
    EXPECT_NO_THROW(config::require_trainable(run_file({fmt::format("pipeline.schedule={}", schedule)})));
  const auto with_experts = [](config::RunConfig config) {
    config.model.architecture = "mixtral";
    config.model.experts = 4;
    return config;
  };
  for (const std::string schedule : {"1f1b", "zb_h1", "zbv", "dualpipev"})
    EXPECT_NO_THROW(config::require_trainable(with_experts(run_file({"pipeline.schedule=" + schedule}))));
  EXPECT_NO_THROW(config::require_trainable(run_file({"device.type=cuda"})));
}

// Planned on a login node: every rank's list is built, verified and replayed.
TEST(PipelinePlan, Of405BOn16384Ranks) {
  const PipelinePlan plan =
      plan_of({"model.vocab_size=128256", "model.hidden_size=16384", "model.intermediate_size=53248",
               "model.layers=126", "model.heads=128", "model.kv_heads=8", "data.seq_len=8192", "batch.global=2048",
               "mesh.tensor=8", "mesh.pipeline=16", "precision.compute=\"bf16\"", "sync.policy=\"deferred\"",
               "sync.reshard_after_forward=false", "sync.reshard_after_backward=false"},
              16384);
  ASSERT_EQ(plan.steps.size(), 16U);
  std::int64_t elements = 0;
  for (const model::PipelinePart& part : plan.parts) elements += part.model.elements();
  EXPECT_EQ(elements, plan.whole.elements());
  const auto bytes = static_cast<double>(plan.memory[static_cast<std::size_t>(plan.worst_rank())].total().value);
  EXPECT_GT(bytes, 30e9);
  EXPECT_LT(bytes, 90e9);
}

TEST(ActionGrid, ShowsEveryActionAndTheBubble) {
  const PipelinePlan plan = plan_of({"batch.global=2", "pipeline.schedule=\"zb_h1\""}, 2);
  const std::string text = action_grid(plan);
  EXPECT_EQ(text.substr(0, text.find("\n\n")), R"(time   p0   p1
0     0F0    .
1     0F1  1F0
2       .  1I0
3     0I0  1F1
4     0W0  1I1
5     0I1  1W0
6     0W1  1W1)");
  EXPECT_THAT(text, HasSubstr("14.3% = 1 / (1 + 3 x 1 x 2)"));
  EXPECT_THAT(text, ::testing::ContainsRegex("counted in the grid +14.3%"));
}

TEST(PipelinePlan, SyncAutoTakesWhatFitsTheWorstPipelineRank) {
  const PipelinePlan kept =
      plan_of({"sync.policy=deferred", "sync.reshard_after_forward=false", "sync.reshard_after_backward=false"}, 4);
  const std::int64_t needed = kept.memory[static_cast<std::size_t>(kept.worst_rank())].total().value;
  const auto chosen = [&](std::int64_t budget) {
    const config::RunConfig config = run_file({"sync.policy=auto", fmt::format("memory.budget={}", budget)});
    const config::Resolved mesh = config::resolve(config, 4);
    return choose_sync(config, model::build(config.model), mesh).sync;
  };
  EXPECT_FALSE(chosen(needed).reshard_after_backward);
  EXPECT_TRUE(chosen(needed - 1).reshard_after_backward);
}

}  // namespace
}  // namespace trireme::planner
