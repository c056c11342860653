// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "model/building.hpp"

namespace trireme::model {

namespace {

ParameterBlock llama_layer_parameters(const Sizes& s, std::int64_t layer, Stds stds) {
  const auto named = [&](std::string_view name) { return fmt::format("model.layers.{}.{}.weight", layer, name); };
  const std::int64_t q_rows = s.heads * s.head_dim;
  const std::int64_t kv_rows = s.kv_heads * s.head_dim;
  return {.name = fmt::format("b{}", layer),
          .parameters = {ones(named("input_layernorm"), s.hidden),
                         matrix(named("self_attn.q_proj"), q_rows, s.hidden, stds.plain),
                         matrix(named("self_attn.k_proj"), kv_rows, s.hidden, stds.plain),
                         matrix(named("self_attn.v_proj"), kv_rows, s.hidden, stds.plain),
                         matrix(named("self_attn.o_proj"), s.hidden, q_rows, stds.residual),
                         ones(named("post_attention_layernorm"), s.hidden),
                         matrix(named("mlp.gate_proj"), s.intermediate, s.hidden, stds.plain),
                         matrix(named("mlp.up_proj"), s.intermediate, s.hidden, stds.plain),
                         matrix(named("mlp.down_proj"), s.hidden, s.intermediate, stds.residual)}};
}

ComputeBlock llama_layer_stages(std::string name, ParamBlock block) {
  return {.name = std::move(name),
          .stages = {{.name = "attention", .kind = StageKind::attention, .parameters = refs(block, 0, 5)},
                     {.name = "mlp", .kind = StageKind::mlp, .parameters = refs(block, 5, 4)}},
          .reads = {block}};
}

void llama_add_embedding(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  model.parameter_blocks.push_back({.name = "embedding",
                                    .parameters = {matrix("model.embed_tokens.weight", s.vocab, s.hidden, stds.plain)},
                                    .backward_reads = s.tied});
  const ParamBlock block{0};
  model.compute_blocks.push_back(
      {.name = "embedding",
       .stages = {{.name = "embedding", .kind = StageKind::embedding, .parameters = refs(block, 0, 1)}},
       .reads = {block}});
}

void llama_add_head(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  const ParamBlock embedding{0};
  const ParamBlock head{model.param_blocks()};
  ParameterBlock parameters{.name = "head", .parameters = {ones("model.norm.weight", s.hidden)}};
  ComputeBlock block{.name = "head", .stages = {}, .reads = {head}};
  ParamRef projection{.block = head, .index = 1};
  if (s.tied) {
    projection = {.block = embedding, .index = 0};
    block.reads.push_back(embedding);
  } else {
    parameters.parameters.push_back(matrix("lm_head.weight", s.vocab, s.hidden, stds.plain));
  }
  block.stages = {{.name = "head", .kind = StageKind::head, .parameters = {{.block = head, .index = 0}, projection}}};
  model.parameter_blocks.push_back(std::move(parameters));
  model.compute_blocks.push_back(std::move(block));
}

}  // namespace

Model build_llama(const config::Model& config) {
  const Sizes sizes = completed_sizes(config, {});
  Model model{
      .architecture = "llama", .sizes = sizes, .held = sizes, .part = {}, .parameter_blocks = {}, .compute_blocks = {}};
  const Stds stds = stds_of(config, sizes);
  llama_add_embedding(model, stds);
  for (std::int64_t layer = 0; layer < model.sizes.layers; ++layer) {
    const ParamBlock block{model.param_blocks()};
    model.parameter_blocks.push_back(llama_layer_parameters(model.sizes, layer, stds));
    model.compute_blocks.push_back(llama_layer_stages(fmt::format("b{}", layer), block));
  }
  llama_add_head(model, stds);
  return model;
}

}  // namespace trireme::model
