// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/tensor_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::model {
namespace {

config::Model llama() {
  return {.vocab_size = 97,
          .hidden_size = 24,
          .intermediate_size = 40,
          .layers = 2,
          .heads = 8,
          .kv_heads = 2,
          .head_dim = 6};
}

config::Model gpt2(bool tied) {
  return {.architecture = "gpt2",
          .vocab_size = 97,
          .hidden_size = 24,
          .intermediate_size = 40,
          .layers = 1,
          .heads = 8,
          .positions = 16,
          .tie_embeddings = tied};
}

std::string message_of(const config::Model& config, int ranks) {
  try {
    (void)build(config, {.rank = 0, .ranks = ranks});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// Every element of every parameter is held by `copies` ranks; the runs of one rank lie in order and are all it holds
/// but padding.
void expect_exact_cover(const config::Model& config, int ranks) {
  const Model whole = build(config);
  for (int b = 0; b < whole.param_blocks(); ++b)
    for (int i = 0; i < static_cast<int>(whole[ParamBlock{b}].parameters.size()); ++i) {
      const ParamRef ref{ParamBlock{b}, i};
      std::vector<int> held(static_cast<std::size_t>(whole[ref].elements()), 0);
      int copies = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Parameter part = build(config, {.rank = rank, .ranks = ranks})[ref];
        ASSERT_EQ(part.full_shape(), whole[ref].shape) << part.name;
        EXPECT_EQ(as_held_by(build(config, {.rank = 0, .ranks = ranks})[ref], rank).partition, part.partition)
            << part.name;
        copies = part.partition->copies;
        std::int64_t at = 0;
        for (const Extent& run : extents(part, 0, part.elements())) {
          EXPECT_GE(run.held, at);
          at = run.held + run.count;
          for (std::int64_t e = 0; e < run.count; ++e) ++held[static_cast<std::size_t>(run.whole + e)];
        }
        EXPECT_LE(at, part.elements());
        // Any stretch of it gives the same elements as the whole.
        const std::int64_t third = part.elements() / 3;
        std::int64_t count = 0;
        for (const auto& [begin, end] : {std::pair{std::int64_t{0}, third}, {third, third + 1}, {third + 1, at}})
          for (const Extent& run : extents(part, begin, end)) count += run.count;
        std::int64_t all = 0;
        for (const Extent& run : extents(part, 0, part.elements())) all += run.count;
        EXPECT_EQ(count, all) << part.name;
      }
      for (const int times : held) ASSERT_EQ(times, copies) << whole[ref].name;
    }
}

TEST(TensorPlan, GivesEveryElementToOneRankOrItsNeighbours) {
  for (const int ranks : {2, 4, 8}) {
    expect_exact_cover(llama(), ranks);
    config::Model olmo = llama();
    olmo.architecture = "olmo2";
    expect_exact_cover(olmo, ranks);
    expect_exact_cover(gpt2(true), ranks);
    expect_exact_cover(gpt2(false), ranks);
  }
}

TEST(TensorPlan, CutsLlamaByHeadsColumnsAndVocabulary) {
  const Model part = build(llama(), {.rank = 3, .ranks = 4, .sequence_parallel = true});
  std::string text;
  for (const Parameter& p : part[ParamBlock{1}].parameters)
    text += fmt::format("{} {} part {} of {} copy {} of {}{}\n", p.name.substr(15), p.shape, p.partition->part,
                        p.partition->parts, p.partition->copy, p.partition->copies,
                        p.partition->sum_gradient ? " summed" : "");
  EXPECT_EQ(text, R"(input_layernorm.weight [24] part 0 of 1 copy 3 of 4 summed
self_attn.q_proj.weight [12, 24] part 3 of 4 copy 0 of 1
self_attn.k_proj.weight [6, 24] part 1 of 2 copy 1 of 2 summed
self_attn.v_proj.weight [6, 24] part 1 of 2 copy 1 of 2 summed
self_attn.o_proj.weight [24, 12] part 3 of 4 copy 0 of 1
post_attention_layernorm.weight [24] part 0 of 1 copy 3 of 4 summed
mlp.gate_proj.weight [10, 24] part 3 of 4 copy 0 of 1
mlp.up_proj.weight [10, 24] part 3 of 4 copy 0 of 1
mlp.down_proj.weight [24, 10] part 3 of 4 copy 0 of 1
)");
  EXPECT_EQ(part[ParamBlock{0}].parameters[0].shape, (std::vector<std::int64_t>{25, 24})) << "97 tokens, padded to 100";
  EXPECT_EQ(part.held.vocab, 22) << "of which the last rank has 22";
  EXPECT_EQ(part.elements(), build(llama()).elements()) << "the model's size does not depend on who holds it";
}

TEST(TensorPlan, WithoutSequenceParallelismNormsNeedNoSum) {
  const Model whole_stream = build(gpt2(true), {.rank = 0, .ranks = 2});
  for (const Parameter& p : whole_stream[ParamBlock{2}].parameters) EXPECT_FALSE(p.partition->sum_gradient) << p.name;
  const Model parts = build(gpt2(true), {.rank = 0, .ranks = 2, .sequence_parallel = true});
  for (const Parameter& p : parts[ParamBlock{2}].parameters)
    EXPECT_EQ(p.partition->sum_gradient, p.name.find(".ln_") != std::string::npos) << p.name;
}

TEST(TensorPlan, OneRankIsTheWholeModel) {
  const Model whole = build(llama(), {});
  for (const ParameterBlock& block : whole.parameter_blocks)
    for (const Parameter& p : block.parameters) EXPECT_FALSE(p.partition) << p.name;
  EXPECT_EQ(whole.held, whole.sizes);
}

TEST(TensorPlan, NamesAllSizesThatDoNotDivideAndTheNearestThatDo) {
  config::Model config = llama();
  config.intermediate_size = 42;
  const std::string message = message_of(config, 4);
  for (const char* part : {"mesh.tensor = 4", "model.intermediate_size = 42", "nearest", "2"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  const std::string three = message_of(llama(), 3);
  for (const char* part : {"model.heads = 8", "model.kv_heads = 2", "model.intermediate_size = 40", "2 or 4"})
    EXPECT_NE(three.find(part), std::string::npos) << three;
  EXPECT_EQ(message_of(llama(), 8), "");
}

}  // namespace
}  // namespace trireme::model
