// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "trireme/model/model.hpp"

namespace trireme::model::llama_test {
namespace {

config::Model small(bool tied) {
  config::Model config;
  config.vocab_size = 97;
  config.hidden_size = 24;
  config.intermediate_size = 50;
  config.layers = 2;
  config.heads = 6;
  config.kv_heads = 2;
  config.tie_embeddings = tied;
  return config;
}

std::string listing(const Model& model) {
  std::string text;
  for (const ParameterBlock& block : model.parameter_blocks) {
    text += fmt::format("{}{}\n", block.name, block.backward_reads ? "" : " (backward reads no values)");
    for (const Parameter& p : block.parameters) {
      text += fmt::format("  {} {} {}\n", p.name, p.shape, p.filling == Filling::ones ? "ones" : "normal");
    }
  }
  for (const ComputeBlock& block : model.compute_blocks) {
    text += fmt::format("{} reads", block.name);
    for (const ParamBlock read : block.reads) text += " " + model[read].name;
    text += '\n';
    for (const Stage& stage : block.stages) {
      text += fmt::format("  {}:", stage.name);
      for (const ParamRef ref : stage.parameters) text += fmt::format(" {}.{}", model[ref.block].name, ref.index);
      text += '\n';
    }
  }
  return text;
}

constexpr std::string_view golden_layers = R"(b0
  model.layers.0.input_layernorm.weight [24] ones
  model.layers.0.self_attn.q_proj.weight [24, 24] normal
  model.layers.0.self_attn.k_proj.weight [8, 24] normal
  model.layers.0.self_attn.v_proj.weight [8, 24] normal
  model.layers.0.self_attn.o_proj.weight [24, 24] normal
  model.layers.0.post_attention_layernorm.weight [24] ones
  model.layers.0.mlp.gate_proj.weight [50, 24] normal
  model.layers.0.mlp.up_proj.weight [50, 24] normal
  model.layers.0.mlp.down_proj.weight [24, 50] normal
b1
  model.layers.1.input_layernorm.weight [24] ones
  model.layers.1.self_attn.q_proj.weight [24, 24] normal
  model.layers.1.self_attn.k_proj.weight [8, 24] normal
  model.layers.1.self_attn.v_proj.weight [8, 24] normal
  model.layers.1.self_attn.o_proj.weight [24, 24] normal
  model.layers.1.post_attention_layernorm.weight [24] ones
  model.layers.1.mlp.gate_proj.weight [50, 24] normal
  model.layers.1.mlp.up_proj.weight [50, 24] normal
  model.layers.1.mlp.down_proj.weight [24, 50] normal
)";

constexpr std::string_view golden_stages = R"(embedding reads embedding
  embedding: embedding.0
b0 reads b0
  attention: b0.0 b0.1 b0.2 b0.3 b0.4
  mlp: b0.5 b0.6 b0.7 b0.8
b1 reads b1
  attention: b1.0 b1.1 b1.2 b1.3 b1.4
  mlp: b1.5 b1.6 b1.7 b1.8
)";

TEST(Llama, HasHuggingFacesParametersInOrder) {
  EXPECT_EQ(listing(build(small(false))), fmt::format(R"(embedding (backward reads no values)
  model.embed_tokens.weight [97, 24] normal
{}head
  model.norm.weight [24] ones
  lm_head.weight [97, 24] normal
{}head reads head
  head: head.0 head.1
)",
                                                      golden_layers, golden_stages));
}

TEST(Llama, TiedHeadReadsTheEmbeddingsBlock) {
  EXPECT_EQ(listing(build(small(true))), fmt::format(R"(embedding
  model.embed_tokens.weight [97, 24] normal
{}head
  model.norm.weight [24] ones
{}head reads head embedding
  head: head.0 embedding.0
)",
                                                     golden_layers, golden_stages));
}

TEST(Llama, TyingSavesOneMatrix) { EXPECT_EQ(build(small(false)).elements() - build(small(true)).elements(), 97 * 24); }

TEST(Llama, EveryBlockReadsExactlyWhatItsStagesName) {
  for (const bool tied : {false, true}) {
    const Model model = build(small(tied));
    for (const ComputeBlock& block : model.compute_blocks) {
      std::set<int> named, read;
      for (const Stage& stage : block.stages) {
        for (const ParamRef ref : stage.parameters) named.insert(ref.block.value);
      }
      for (const ParamBlock one : block.reads) EXPECT_TRUE(read.insert(one.value).second);
      EXPECT_EQ(named, read) << block.name;
    }
  }
}

TEST(Llama, CountsTheParametersOfKnownModels) {
  config::Model config;  // Llama 3.1 8B
  config.vocab_size = 128256;
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.layers = 32;
  config.heads = 32;
  config.kv_heads = 8;
  EXPECT_EQ(build(config).elements(), 8030261248);
  config.hidden_size = 2048;  // Llama 3.2 1B
  config.intermediate_size = 8192;
  config.layers = 16;
  config.tie_embeddings = true;
  EXPECT_EQ(build(config).elements(), 1235814400);
}

TEST(Llama, DepthScalingShrinksOnlyWhatWritesTheResidualStream) {
  config::Model config = small(false);
  config.init_std = 0.1;
  config.init = config::Init::depth_scaled;
  const Model model = build(config);
  for (const ParameterBlock& block : model.parameter_blocks) {
    for (const Parameter& p : block.parameters) {
      if (p.filling == Filling::ones) continue;
      const bool residual = p.name.find("o_proj") != std::string::npos || p.name.find("down_proj") != std::string::npos;
      EXPECT_DOUBLE_EQ(p.std, residual ? 0.1 / std::sqrt(4.0) : 0.1) << p.name;
    }
  }
}

TEST(Llama, PlainInitialisationHasOneStandardDeviation) {
  config::Model config = small(true);
  config.init_std = 0.05;
  for (const ParameterBlock& block : build(config).parameter_blocks) {
    for (const Parameter& p : block.parameters) {
      if (p.filling == Filling::ones) continue;
      EXPECT_DOUBLE_EQ(p.std, 0.05);
    }
  }
}

}  // namespace
}  // namespace trireme::model::llama_test
