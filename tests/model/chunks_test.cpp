// SPDX-License-Identifier: Apache-2.0
// The model in chunks, and what a pipeline rank holds of it.
#include "trireme/model/chunks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/model/activations.hpp"

namespace trireme::model {
namespace {

Model llama(std::int64_t layers, std::int64_t vocab, bool tied = false, std::string architecture = "llama") {
  config::Model config;
  config.architecture = std::move(architecture);
  config.vocab_size = vocab;
  config.hidden_size = 64;
  config.intermediate_size = config.architecture == "llama" ? 128 : 256;
  config.layers = layers;
  config.heads = 4;
  config.positions = config.architecture == "gpt2" ? 32 : 0;
  config.tie_embeddings = tied;
  return build(config);
}

std::vector<int> layers_of(const Model& model, const std::vector<Chunk>& chunks) {
  std::vector<int> out;
  for (const Chunk& chunk : chunks) {
    int layers = 0;
    for (Block b = chunk.first; b < chunk.last; ++b.value) layers += recomputes(model[b]) ? 1 : 0;
    out.push_back(layers);
  }
  return out;
}

TEST(CutByFlops, MakesTheLargestChunkAsSmallAsCanBe) {
  for (const std::int64_t vocab : {64, 1024, 4096})
    for (int layers = 3; layers <= 7; ++layers)
      for (int count = 1; count <= 3; ++count) {
        const Model model = llama(layers, vocab);
        const auto largest = [&](const std::vector<Chunk>& chunks) {
          double most = 0;
          for (const Chunk& chunk : chunks) {
            double sum = 0;
            for (Block b = chunk.first; b < chunk.last; ++b.value) sum += block_flops(model, b, 32);
            most = std::max(most, sum);
          }
          return most;
        };
        double least = 1e300;
        for (std::int64_t a = 1; a <= layers; ++a)  // all cuts
          for (std::int64_t b = 1; b <= layers; ++b) {
            std::vector<std::int64_t> each{a, b, layers - a - b};
            if (count < 3) each = {a, layers - a};
            if (count < 2) each = {layers};
            if (each.back() > 0) least = std::min(least, largest(cut_by_layers(model, each)));
          }
        EXPECT_DOUBLE_EQ(largest(cut_by_flops(model, count, 32)), least) << layers << " layers in " << count;
      }
}

TEST(CutByFlops, PrefersTheEarlierCutAndGivesEveryChunkALayer) {
  EXPECT_THAT(layers_of(llama(7, 64), cut_by_flops(llama(7, 64), 2, 32)), ::testing::ElementsAre(4, 3))
      << "the head goes with the fewer layers";
  EXPECT_THAT(layers_of(llama(10, 64), cut_by_flops(llama(10, 64), 4, 32)), ::testing::ElementsAre(2, 3, 3, 2));
  const Model head = llama(4, 1 << 14);
  EXPECT_THAT(layers_of(head, cut_by_flops(head, 4, 32)), ::testing::ElementsAre(1, 1, 1, 1));
  EXPECT_THROW((void)cut_by_flops(llama(3, 64), 4, 32), ConfigError);
  EXPECT_THROW((void)cut_by_layers(llama(3, 64), std::vector<std::int64_t>{3, 0}), ConfigError);
  EXPECT_THROW((void)cut_by_layers(llama(3, 64), std::vector<std::int64_t>{1, 1}), ConfigError);
}

TEST(PipelinePart, HoldsEveryBlockOnceUnderItsName) {
  for (const bool gpt2 : {false, true})
    for (const bool tied : {false, true}) {
      const Model whole = llama(6, 512, tied || gpt2, gpt2 ? "gpt2" : "llama");
      const auto chunks = cut_by_flops(whole, 4, 32);
      std::map<std::string, int> blocks, parameters;
      double flops = 0;
      for (const std::vector<int>& held : {std::vector<int>{0, 2}, {1, 3}}) {
        const PipelinePart part = take(whole, chunks, held);
        ASSERT_EQ(part.chunks.size(), 2U);
        EXPECT_EQ(part.chunks[0].last, part.chunks[1].first);
        EXPECT_EQ(part.chunks[1].last.value, part.model.blocks());
        for (const ParameterBlock& block : part.model.parameter_blocks) {
          ++parameters[block.name];
          EXPECT_EQ(block.on_two_pipeline_ranks, (tied || gpt2) && block.name == "embedding") << block.name;
        }
        for (int b = 0; b < part.model.blocks(); ++b) {
          const ComputeBlock& block = part.model[Block{b}];
          ++blocks[block.name];
          flops += block_flops(part.model, Block{b}, 32);
          int original = 0;
          while (whole[Block{original}].name != block.name) ++original;
          for (std::size_t s = 0; s < block.stages.size(); ++s)
            for (std::size_t i = 0; i < block.stages[s].parameters.size(); ++i)
              EXPECT_EQ(part.model[block.stages[s].parameters[i]].name,
                        whole[whole[Block{original}].stages[s].parameters[i]].name);
        }
      }
      EXPECT_EQ(blocks.size(), static_cast<std::size_t>(whole.blocks()));
      for (const auto& [name, count] : blocks) EXPECT_EQ(count, 1) << name;
      for (const auto& [name, count] : parameters)
        EXPECT_EQ(count, (tied || gpt2) && name == "embedding" ? 2 : 1) << name;
      EXPECT_EQ(parameters.size(), static_cast<std::size_t>(whole.param_blocks()));
      EXPECT_DOUBLE_EQ(flops, flops_per_token(whole, 32));
    }
}

TEST(PipelinePart, WithVPlacementHasNoTiedCopies) {
  const Model whole = llama(6, 512, /*tied=*/true);
  const PipelinePart part = take(whole, cut_by_flops(whole, 4, 32), std::vector<int>{0, 3});
  EXPECT_EQ(part.model[ParamBlock{0}].name, "embedding");
  EXPECT_FALSE(part.model[ParamBlock{0}].on_two_pipeline_ranks);
}

TEST(PendingTensors, AreOfTheSizesThatWeightsNeed) {
  const Sizes sizes = llama(1, 64).sizes;  // hidden 64, heads 4 x 16, kv 4, intermediate 128
  const auto total = [](const Pending& pending) {
    Bytes sum;
    for (const Bytes bytes : pending.tensors) sum += bytes;
    return sum.value;
  };
  const auto of = [&](StageKind kind, Keep keep) { return pending_tensors(kind, sizes, 10, DType::bf16, keep); };
  EXPECT_EQ(total(of(StageKind::attention, Keep::products)), 10 * 2 * (64 + 64 + 64 + 192) + 4 * 64);
  EXPECT_EQ(of(StageKind::attention, Keep::products).fresh.value, 10 * 2 * (64 + 64 + 192) + 4 * 64);
  EXPECT_EQ(of(StageKind::attention, Keep::all).fresh.value, 10 * 2 * (64 + 192) + 4 * 64);
  EXPECT_EQ(total(of(StageKind::mlp, Keep::all)), 10 * 2 * (64 + 64 + 128 + 256) + 4 * 64);
  EXPECT_EQ(of(StageKind::mlp, Keep::all).fresh.value, 10 * 2 * (64 + 256) + 4 * 64);
  EXPECT_EQ(total(of(StageKind::norm, Keep::products)), 10 * (2 * 64 + 4) + 4 * 64);
  EXPECT_EQ(of(StageKind::norm, Keep::products).fresh.value, 4 * 64);
  EXPECT_EQ(total(of(StageKind::mlp_branch, Keep::products)), 10 * 2 * (64 + 128 + 256));
  EXPECT_THROW((void)of(StageKind::head, Keep::products), BugError);
}

}  // namespace
}  // namespace trireme::model
