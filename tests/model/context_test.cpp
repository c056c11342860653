// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/context.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/model/architecture.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model::context_test {
namespace {

config::Model sizes(std::string architecture = "llama") {
  return {.architecture = std::move(architecture),
          .vocab_size = 97,
          .hidden_size = 48,
          .intermediate_size = 40,
          .layers = 2,
          .heads = 8,
          .kv_heads = 4,
          .head_dim = 6};
}

TEST(ContextPart, CoversEverySequenceOnceInOrder) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const std::int64_t seq_len = 2 * ranks * 5;
    std::set<std::int64_t> seen;
    for (int rank = 0; rank < ranks; ++rank) {
      const ContextPart part{.rank = rank, .ranks = ranks};
      std::int64_t before = -1;
      for (std::int64_t token = 0; token < seq_len / ranks; ++token) {
        const std::int64_t position = part.position(token, seq_len);
        EXPECT_GT(position, before) << "causal order is kept";
        before = position;
        EXPECT_TRUE(seen.insert(position).second) << position;
      }
      EXPECT_EQ(part.position(0, seq_len), part.first_run(seq_len));
      EXPECT_EQ(part.position(part.run(seq_len), seq_len), part.second_run(seq_len));
    }
    EXPECT_EQ(*seen.begin(), 0);
    EXPECT_EQ(*seen.rbegin(), seq_len - 1);
    EXPECT_EQ(static_cast<std::int64_t>(seen.size()), seq_len);
  }
}

TEST(ContextPart, GivesEveryRankAsManyPairsOfQueryAndKey) {
  constexpr int ranks = 4;
  constexpr std::int64_t seq_len = 2 * ranks * 6;
  std::set<std::int64_t> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    const ContextPart part{.rank = rank, .ranks = ranks};
    std::int64_t sum = 0;
    for (std::int64_t token = 0; token < seq_len / ranks; ++token) sum += part.position(token, seq_len) + 1;
    pairs.insert(sum);
  }
  EXPECT_THAT(pairs, testing::ElementsAre(seq_len * (seq_len + 1) / 2 / ranks));
}

TEST(ContextPart, OfOneRankIsTheSequenceOfAnyLength) {
  for (const std::int64_t seq_len : {1, 7, 8})
    for (std::int64_t token = 0; token < seq_len; ++token) EXPECT_EQ(ContextPart{}.position(token, seq_len), token);
}

std::vector<std::string> stages_of(const Model& model) {
  std::vector<std::string> names;
  for (const Stage& stage : model.compute_blocks[1].stages) names.push_back(stage.name);
  return names;
}

TEST(DividedSequences, AttentionIsAProjectionAndAttentionOverGatheredKeys) {
  using testing::ElementsAre;
  const ContextPart context{.rank = 1, .ranks = 2};
  const Model alone = build(sizes(), {.context = context});
  EXPECT_THAT(stages_of(alone), ElementsAre("attention_norm", "projection", "attention", "mlp"));
  const Model shared = build(sizes(), {.ranks = 2, .sequence_parallel = true, .context = context});
  EXPECT_THAT(stages_of(shared), ElementsAre("attention_norm", "projection", "attention", "mlp_norm", "mlp"));
  const std::vector<Stage>& stages = shared.compute_blocks[1].stages;
  EXPECT_EQ(stages[1].enter, Exchange::gather_sequence);
  EXPECT_EQ(stages[1].leave, std::nullopt);
  EXPECT_EQ(stages[2].enter, Exchange::gather_keys);
  EXPECT_EQ(stages[2].leave, Exchange::scatter_sequence);
  EXPECT_EQ(alone.part.context, context);
}

constexpr auto heads = config::ContextMethod::heads;

TEST(DividedSequences, AttentionByHeadsStandsBetweenTwoExchanges) {
  using testing::ElementsAre;
  const ContextPart context{.rank = 1, .ranks = 2, .method = heads};
  const Model alone = build(sizes(), {.context = context});
  EXPECT_THAT(stages_of(alone), ElementsAre("attention_norm", "projection", "attention", "output", "mlp"));
  const Model shared = build(sizes(), {.ranks = 2, .sequence_parallel = true, .context = context});
  const std::vector<Stage>& stages = shared.compute_blocks[1].stages;
  EXPECT_EQ(stages[1].enter, Exchange::gather_sequence);
  EXPECT_EQ(stages[2].enter, Exchange::to_heads);
  EXPECT_EQ(stages[2].leave, std::nullopt);
  EXPECT_TRUE(stages[2].parameters.empty());
  EXPECT_EQ(stages[3].enter, Exchange::to_tokens);
  EXPECT_EQ(stages[3].leave, Exchange::scatter_sequence);
  EXPECT_EQ(exchanged_width(shared, Block{1}, trireme::Stage{2}), (8 + 2 * 4) / 2 * 6);
  EXPECT_EQ(exchanged_width(shared, Block{1}, trireme::Stage{3}), 8 / 2 * 6);
}

TEST(DividedSequences, ByHeadsAreRefusedWithValidValuesWhereHeadsDoNotDivide) {
  const auto refused = [](config::Model config, int tensor, int context) -> std::string {
    try {
      (void)build(config, {.ranks = tensor, .context = {.ranks = context, .method = heads}});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  config::Model config = sizes();
  for (const auto& [tensor, context] : {std::pair{1, 2}, {1, 4}, {2, 2}})
    EXPECT_EQ(refused(config, tensor, context), "");
  using testing::HasSubstr;
  EXPECT_THAT(refused(config, 1, 8),
              testing::AllOf(HasSubstr("context.method = \"heads\""),
                             HasSubstr("mesh.context = 8 does not divide the 8 heads and 4 kv_heads"),
                             HasSubstr("set mesh.context = 2 or 4, or context.method = \"gather\"")));
  EXPECT_THAT(refused(config, 2, 4), HasSubstr("the 4 heads and 2 kv_heads that mesh.tensor = 2 leaves each rank; set "
                                               "mesh.context = 2, or context.method"));
  EXPECT_THAT(refused(config, 4, 2), HasSubstr("1 kv_heads that mesh.tensor = 4 leaves each rank; set context.method"));
  config.heads = 6;  // 3 context ranks divide these, not kv_heads
  config.kv_heads = 2;
  EXPECT_THAT(refused(config, 1, 3), HasSubstr("set mesh.context = 2, or"));
}

TEST(DividedSequences, LeaveLayersOfExpertsWhole) {
  config::Model config = sizes("qwen3_moe");
  config.experts = 4;
  config.experts_per_token = 2;
  const Model model = build(config, {.context = {.ranks = 2}});
  EXPECT_EQ(model.param_blocks(), build(config).param_blocks());
  EXPECT_EQ(model[Block{1}].stages.back().kind, StageKind::moe);
}
TEST(DividedSequences, KeepEveryParameterInItsOrderInEveryFamily) {
  for (const Architecture& family : architectures()) {
    if (family.decoder.experts) continue;
    config::Model config = sizes(std::string(family.name));
    if (family.decoder.latent) {
      config.kv_heads = config.head_dim = 0;
      config.q_rank = config.kv_rank = config.nope_dim = config.rope_dim = config.value_dim = 4;
    }
    if (family.decoder.learned_positions) config.positions = 16, config.kv_heads = config.head_dim = 0;
    if (family.scales_queries) config.rope_scaling = config::RopeScaling{.type = config::RopeType::yarn};
    for (const auto method : {config::ContextMethod::gather, heads}) {
      if (family.decoder.latent && method == heads) continue;
      const Model whole = build(config), divided = build(config, {.context = {.ranks = 2, .method = method}});
      const auto refs = [](const Model& model) {
        std::vector<std::pair<int, int>> all;
        for (const Stage& stage : model.compute_blocks[1].stages)
          for (const ParamRef ref : stage.parameters) all.emplace_back(ref.block.value, ref.index);
        return all;
      };
      EXPECT_EQ(refs(divided), refs(whole)) << family.name;
      for (const Stage& stage : divided.compute_blocks[1].stages) {
        const auto roles = roles_of(stage.kind, divided.sizes.decoder);
        if (stage.kind != StageKind::projection && !attends(stage.kind) && !ends_attention(stage.kind)) continue;
        ASSERT_EQ(roles.size(), stage.parameters.size()) << family.name;
        for (std::size_t i = 0; i < roles.size(); ++i) EXPECT_EQ(divided[stage.parameters[i]].role, roles[i]);
      }
    }
  }
}

TEST(DividedSequences, OfLatentAttentionGatherTheLatents) {
  config::Model config = sizes("youtu");
  config.kv_heads = config.head_dim = 0;
  config.kv_rank = 10, config.nope_dim = config.value_dim = 8, config.rope_dim = 4;
  const Model divided = build(config, {.context = {.ranks = 2}});
  EXPECT_EQ(gathered_width(divided.held), 10 + 4) << "not 8 heads of 12 and of 8";
  try {
    (void)build(config, {.context = {.ranks = 2, .method = heads}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("set context.method = \"gather\""));
  }
}

TEST(DividedSequences, SaveWhatTheWholeStageSaves) {
  const Model divided = build(sizes(), {.context = {.ranks = 2}});
  Bytes sum;
  for (const Stage& stage : divided.compute_blocks[1].stages)
    if (stage.kind != StageKind::mlp) sum += saved_bytes(stage.kind, divided.held, 24, DType::bf16);
  EXPECT_EQ(sum, saved_bytes(StageKind::attention, divided.held, 24, DType::bf16));
}

TEST(DividedSequences, ByHeadsSaveTheOutputOfAttentionBothByHeadsAndByTokens) {
  const Model divided = build(sizes(), {.context = {.ranks = 2, .method = heads}});
  Bytes sum;
  for (const Stage& stage : divided.compute_blocks[1].stages)
    if (stage.kind != StageKind::mlp) sum += saved_bytes(stage.kind, divided.held, 24, DType::bf16);
  EXPECT_EQ(sum, saved_bytes(StageKind::attention, divided.held, 24, DType::bf16) + Bytes{24 * 8 * 6 * 2});
}

}  // namespace
}  // namespace trireme::model::context_test
