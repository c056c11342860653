// SPDX-License-Identifier: Apache-2.0
#include "trireme/planner/replay.hpp"

#include <gtest/gtest.h>

#include "small_llama.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/schedule/passes/build.hpp"

namespace trireme::planner {
namespace {

Bytes saved(const model::Model& model, const ReplayOptions& replay_options,
            std::initializer_list<model::StageKind> kinds) {
  Bytes sum;
  for (const auto kind : kinds)
    sum += model::saved_bytes(kind, model.sizes, replay_options.tokens, replay_options.compute);
  return sum;
}

/// Issue 3's formula: per microbatch one gather per block, one more for each block given up whose backward reads it.
TEST(ReplayTraffic, EqualsTheFormula) {
  const model::Model model = llama();
  for (const int n : {1, 2, 3, 5}) {
    const shard::Layout layout(model, n);
    const std::int64_t embedding = layout[ParamBlock{0}].padded(), layer = layout[ParamBlock{1}].padded(),
                       head = layout[ParamBlock{4}].padded();
    for (const int microbatches : {1, 4})
      for (const auto sync : {config::SyncPolicy::immediate, config::SyncPolicy::deferred}) {
        const auto schedule = schedule::build_step(model, microbatches, {.sync = sync});
        const Traffic traffic = replay_traffic(schedule, model, layout, {.compute = DType::bf16, .tokens = 8});
        const std::int64_t gathered = microbatches * (embedding + 2 * 3 * layer + head) * 2 * (n - 1) / n;
        const std::int64_t reductions = sync == config::SyncPolicy::immediate ? microbatches : 1;
        const std::int64_t reduced = reductions * (embedding + 3 * layer + head) * 4 * (n - 1) / n;
        EXPECT_EQ(traffic.at("shard").at("all_gather"), (Moved{{gathered}, microbatches * 8}));
        EXPECT_EQ(traffic.at("shard").at("reduce_scatter"), (Moved{{reduced}, reductions * 5}));
      }
  }
}

TEST(ReplayTraffic, OfReplicasDoesNotGrowWithAccumulation) {
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const auto bytes = [&](int microbatches) {
    return replay_traffic(schedule::build_step(model, microbatches, {.replicas = 3}), model, layout,
                          {.tokens = 8, .replicas = 3})
        .at("replicate");
  };
  EXPECT_EQ(bytes(1), bytes(4));
}

/// docs/parallelism.md: a rank gathers keys and values twice a layer and microbatch, and sums their gradients once.
TEST(ReplayTraffic, OfContextRanksEqualsTheFormulaAndActivationsAreDivided) {
  config::Model sizes = llama().config;
  const std::int64_t tokens = 96, microbatches = 3;
  const ReplayOptions whole{.compute = DType::bf16, .tokens = tokens};
  const model::Model alone = model::build(sizes);
  const Memory undivided =
      replay_memory(schedule::build_step(alone, microbatches, {}), alone, shard::Layout(alone, 4), whole);
  for (const int context : {2, 4})
    for (const int tensor : {1, 2}) {
      const model::Model model =
          model::build(sizes, {.ranks = tensor, .sequence_parallel = tensor > 1, .context = {.ranks = context}});
      const shard::Layout layout(model, 4);
      ReplayOptions divided = whole;
      divided.tokens = tokens / context;
      const auto step = schedule::build_step(model, microbatches, {});
      const Traffic traffic = replay_traffic(step, model, layout, divided);
      const std::int64_t calls = model.sizes.layers * microbatches;
      const std::int64_t keys = tokens / context * 2 * sizes.kv_heads * sizes.head_dim / tensor * 2 * (context - 1);
      EXPECT_EQ(traffic.at("context").at("all_gather"), (Moved{{2 * calls * keys}, 2 * calls}));
      EXPECT_EQ(traffic.at("context").at("reduce_scatter"), (Moved{{calls * keys}, calls}));
      if (tensor > 1) continue;
      EXPECT_EQ(replay_memory(step, model, layout, divided).activations.value * context, undivided.activations.value);
      EXPECT_EQ(replay_memory(step, model, layout, divided).optimizer, undivided.optimizer);
    }
}

/// docs/parallelism.md: queries, keys, values and attention's output are exchanged in both passes.
TEST(ReplayTraffic, OfContextRanksThatExchangeHeadsEqualsTheFormula) {
  config::Model sizes = llama().config;
  sizes.heads = 16;
  sizes.kv_heads = 8;
  const std::int64_t tokens = 96, microbatches = 3;
  const ReplayOptions whole{.compute = DType::bf16, .tokens = tokens};
  const model::Model alone = model::build(sizes);
  const Memory undivided =
      replay_memory(schedule::build_step(alone, microbatches, {}), alone, shard::Layout(alone, 4), whole);
  for (const int context : {2, 4})
    for (const int tensor : {1, 2}) {
      const model::Model model =
          model::build(sizes, {.ranks = tensor,
                               .sequence_parallel = tensor > 1,
                               .context = {.ranks = context, .method = config::ContextMethod::heads}});
      const shard::Layout layout(model, 4);
      ReplayOptions divided = whole;
      divided.tokens = tokens / context;
      const auto step = schedule::build_step(model, microbatches, {});
      const Traffic traffic = replay_traffic(step, model, layout, divided);
      const std::int64_t calls = model.sizes.layers * microbatches;
      const std::int64_t bytes =
          2 * divided.tokens * (2 * 16 + 2 * 8) * sizes.head_dim / tensor * 2 / context * (context - 1);
      EXPECT_EQ(traffic.at("context"), (std::map<std::string, Moved>{{"all_to_all", {{calls * bytes}, 4 * calls}}}));
      if (tensor > 1) continue;
      // A second copy of attention's output, by heads and by tokens, in each layer.
      const std::int64_t twice = model.sizes.layers * divided.tokens * 16 * sizes.head_dim * 2;
      EXPECT_EQ((replay_memory(step, model, layout, divided).activations.value - twice) * context,
                undivided.activations.value);
    }
}

TEST(ReplayMemory, HoldsEveryGradientUnderDeferredAndARingUnderImmediate) {
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const ReplayOptions replay_options{.tokens = 32};
  const Memory deferred = replay_memory(schedule::build_step(model, 4, {.sync = config::SyncPolicy::deferred}), model,
                                        layout, replay_options);
  EXPECT_EQ(deferred.gradients_unsharded, Bytes{4 * layout.padded()});
  EXPECT_EQ(deferred.gradients_sharded, Bytes{4 * layout.padded() / 2});
  const Memory immediate = replay_memory(schedule::build_step(model, 4, {}), model, layout, replay_options);
  EXPECT_EQ(immediate.gradients_unsharded, Bytes{4 * (layout.padded() - layout[ParamBlock{1}].padded())});
}

TEST(ReplayMemory, KeepsTheChoiceOfExpertsOfBlocksThatAreComputedAgain) {
  config::Model config = llama().config;
  config.architecture = "mixtral";
  config.experts = 5;
  config.experts_per_token = 3;
  const model::Model model = model::build(config);
  const ReplayOptions replay_options{.compute = DType::bf16, .tokens = 32};
  const auto step = schedule::build_step(model, 1, {.recompute = {.mode = config::Recompute::block}});
  const Memory memory = replay_memory(step, model, shard::Layout(model, 2), replay_options);
  // While the last block is computed again, the two before it have their input and the experts of each token.
  const Bytes input{32 * 72 * 2}, choice{32 * 3 * 4};
  const Bytes whole = saved(model, replay_options, {model::StageKind::attention, model::StageKind::moe});
  EXPECT_EQ(memory.activations.value, 2 * (input + choice).value + whole.value);
  const Bytes gate_up{32 * 3 * 2 * 100 * 2}, logits{32 * 5 * 4}, rstd{32 * 4};
  EXPECT_EQ(saved(model, replay_options, {model::StageKind::moe}), input + rstd + logits + choice + gate_up);
}

/// Six experts in each of three layers, of which a token gets two, over three ranks.
model::Model divided_mixture() {
  config::Model config = llama().config;
  config.architecture = "mixtral";
  config.experts = 6;
  config.experts_per_token = 2;
  return model::build(config, model::TensorPart{.experts = {.ranks = 3}});
}

TEST(ReplayTraffic, CountsRowsBetweenExpertRanksByWhatIsAssumedOrRecorded) {
  const model::Model model = divided_mixture();
  const shard::Layout layout(model, 6);
  const auto step = schedule::build_step(model, 2, {});
  ReplayOptions options{.compute = DType::bf16, .tokens = 30};
  const auto sent = [&] { return replay_traffic(step, model, layout, options).at("expert").at("all_to_all"); };
  constexpr std::int64_t row = 72 * 2, weight = 4, counts = 2 * 2 * 4, layers = 3, microbatches = 2;
  const auto all = [&](std::int64_t out, std::int64_t in) {
    return Moved{{layers * microbatches * ((out + in) * (2 * row + weight) + counts)}, layers * microbatches * 5};
  };
  EXPECT_EQ(sent(), all(40, 40)) << "two thirds of 60 rows";
  options.routing = Routing::balanced;
  EXPECT_EQ(sent(), all(40, 40)) << "room is for memory";
  options.routing = Routing::worst;
  EXPECT_EQ(sent(), all(60, 120));
  for (int b = 1; b <= 3; ++b)
    for (int m = 0; m < 2; ++m)
      options.recorded_rows[{Block{b}, Microbatch{m}}] = {.received = 10 + b, .sent = 7 * b + m, .fetched = b};
  EXPECT_EQ(sent().bytes.value, (2 * 7 * 6 + 3 + 2 * 6) * (2 * row + weight) + layers * microbatches * counts);
}

TEST(ReplayMemory, GathersTheExpertsOfOneRankAndKeepsTheRowsThatTheyGet) {
  const model::Model model = divided_mixture();
  const shard::Layout layout(model, 6);
  const auto step = schedule::build_step(model, 1, {});
  ReplayOptions options{.compute = DType::bf16, .tokens = 30};
  const Memory memory = replay_memory(step, model, layout, options);
  const shard::BlockLayout& experts = layout[ParamBlock{2}];
  EXPECT_EQ(experts.gathered(), experts.padded() / 3);
  EXPECT_EQ(memory.parameters_sharded, Bytes{layout.shard_elements() * 6});
  constexpr std::int64_t row = 72 * 2 + 4 + 2 * 100 * 2;
  const Bytes rows{60 * row};
  EXPECT_EQ(model::saved_bytes(model::StageKind::experts, model.held, 60, DType::bf16), rows);
  const auto more_than_planned = [&] {
    return replay_memory(step, model, layout, options).activations.value - memory.activations.value;
  };
  options.routing = Routing::balanced;
  EXPECT_EQ(more_than_planned(), -3 * 15 * row) << "60 rows in each layer in place of 75";
  options.routing = Routing::worst;
  EXPECT_EQ(more_than_planned(), 3 * (180 - 75) * row);
  for (int b = 1; b <= 3; ++b)
    options.recorded_rows[{Block{b}, Microbatch{0}}] = {.received = 75 + 10 * b, .sent = 0, .fetched = 0};
  EXPECT_EQ(more_than_planned(), rows.value);
  // Traffic of gathers and reductions: the experts' over two ranks each.
  const Traffic traffic = replay_traffic(step, model, layout, options);
  EXPECT_EQ(traffic.at("expert_shard").at("all_gather"), (Moved{{6 * experts.gathered() / 2 * 2}, 6}));
  EXPECT_EQ(traffic.at("expert_shard").at("reduce_scatter"), (Moved{{3 * experts.shard_elements() * 4}, 3}));
}

TEST(ReplayMemory, LeavesBlockInputsAndOneBlocksActivationsWhereBlocksAreComputedAgain) {
  using model::StageKind;
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const ReplayOptions replay_options{.compute = DType::bf16, .tokens = 32};
  const auto activations = [&](config::Recompute mode, std::int64_t every) {
    const auto step = schedule::build_step(model, 2, {.recompute = {.mode = mode, .every = every}});
    return replay_memory(step, model, layout, replay_options).activations;
  };
  const Bytes layer = saved(model, replay_options, {StageKind::attention, StageKind::mlp});
  const Bytes head = saved(model, replay_options, {StageKind::head});
  const Bytes input{32 * 72 * 2}, norms{32 * 2 * 72 * 2}, swiglu{32 * 100 * 2};
  EXPECT_EQ(activations(config::Recompute::block, 1), input + input + layer);
  EXPECT_EQ(activations(config::Recompute::block, 2), input + (layer + norms + swiglu) + layer);
  EXPECT_EQ(activations(config::Recompute::selective, 1), layer + layer + layer + head);
  const Bytes all = layer + norms + swiglu;
  EXPECT_EQ(activations(config::Recompute::none, 1), all + all + all + head);
}

TEST(ReplayMemory, CountsTheActivationsOfOneMicrobatchOfAllBlocks) {
  using model::StageKind;
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const ReplayOptions replay_options{.compute = DType::bf16, .tokens = 32};
  const Memory memory = replay_memory(schedule::build_step(model, 2, {}), model, layout, replay_options);
  const Bytes layer = saved(model, replay_options, {StageKind::attention, StageKind::mlp});
  EXPECT_EQ(memory.activations,
            saved(model, replay_options, {StageKind::embedding, StageKind::head}) + layer + layer + layer);
}

TEST(ReplayMemory, NamesTheOpOfThePeak) {
  const model::Model model = llama();
  const shard::Layout layout(model, 2);
  const auto peak = [&](config::Recompute mode) {
    const auto step = schedule::build_step(model, 2, {.recompute = {.mode = mode}});
    return replay_memory(step, model, layout, {.tokens = 32}).activations_peak;
  };
  EXPECT_EQ(peak(config::Recompute::selective), "forward head m0");
  EXPECT_EQ(peak(config::Recompute::block), "recompute b2 m0");
}

}  // namespace
}  // namespace trireme::planner
