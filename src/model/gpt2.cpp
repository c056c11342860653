// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "model/building.hpp"

namespace trireme::model {

namespace {

constexpr Form form{
    .norm = Norm::layer, .activation = Activation::gelu_tanh, .rotary = false, .biases = true, .joint_qkv = true};
constexpr int attention_parameters = 6, mlp_parameters = 6;

/// A linear layer whose weight Hugging Face keeps as [in, out] (transformers' Conv1D), and its bias.
void add_conv1d(std::vector<Parameter>& to, const std::string& name, std::int64_t out, std::int64_t in, double std) {
  to.push_back(matrix(name + ".weight", out, in, std));
  to.back().transposed_in_files = true;
  to.push_back(zeros(name + ".bias", out));
}

void add_norm(std::vector<Parameter>& to, const std::string& name, std::int64_t size) {
  to.push_back(ones(name + ".weight", size));
  to.push_back(zeros(name + ".bias", size));
}

ParameterBlock gpt2_layer_parameters(const Sizes& s, std::int64_t layer, Stds stds) {
  const auto named = [&](std::string_view name) { return fmt::format("transformer.h.{}.{}", layer, name); };
  ParameterBlock block{.name = fmt::format("b{}", layer), .parameters = {}};
  add_norm(block.parameters, named("ln_1"), s.hidden);
  add_conv1d(block.parameters, named("attn.c_attn"), 3 * s.hidden, s.hidden, stds.plain);
  add_conv1d(block.parameters, named("attn.c_proj"), s.hidden, s.hidden, stds.residual);
  add_norm(block.parameters, named("ln_2"), s.hidden);
  add_conv1d(block.parameters, named("mlp.c_fc"), s.intermediate, s.hidden, stds.plain);
  add_conv1d(block.parameters, named("mlp.c_proj"), s.hidden, s.intermediate, stds.residual);
  return block;
}

ComputeBlock gpt2_layer_stages(std::string name, ParamBlock block) {
  return {
      .name = std::move(name),
      .stages =
          {{.name = "attention", .kind = StageKind::attention, .parameters = refs(block, 0, attention_parameters)},
           {.name = "mlp", .kind = StageKind::mlp, .parameters = refs(block, attention_parameters, mlp_parameters)}},
      .reads = {block}};
}

constexpr ParamBlock tokens{0}, positions{1};

void gpt2_add_embedding(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  model.parameter_blocks.push_back({.name = "embedding",
                                    .parameters = {matrix("transformer.wte.weight", s.vocab, s.hidden, stds.plain)},
                                    .backward_reads = s.tied});
  model.parameter_blocks.push_back({.name = "positions",
                                    .parameters = {matrix("transformer.wpe.weight", s.positions, s.hidden, stds.plain)},
                                    .backward_reads = false});
  model.compute_blocks.push_back(
      {.name = "embedding",
       .stages = {{.name = "tokens", .kind = StageKind::embedding, .parameters = refs(tokens, 0, 1)},
                  {.name = "positions", .kind = StageKind::positions, .parameters = refs(positions, 0, 1)}},
       .reads = {tokens, positions}});
}

void gpt2_add_head(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  const ParamBlock head{model.param_blocks()};
  ParameterBlock parameters{.name = "head", .parameters = {}};
  add_norm(parameters.parameters, "transformer.ln_f", s.hidden);
  ComputeBlock block{.name = "head", .stages = {}, .reads = {head}};
  std::vector<ParamRef> read = refs(head, 0, 2);
  if (s.tied) {
    read.push_back({.block = tokens, .index = 0});
    block.reads.push_back(tokens);
  } else {
    read.push_back({.block = head, .index = 2});
    parameters.parameters.push_back(matrix("lm_head.weight", s.vocab, s.hidden, stds.plain));
  }
  block.stages = {{.name = "head", .kind = StageKind::head, .parameters = std::move(read)}};
  model.parameter_blocks.push_back(std::move(parameters));
  model.compute_blocks.push_back(std::move(block));
}

}  // namespace

Model build_gpt2(const config::Model& config) {
  const Sizes sizes = completed_sizes(config, form);
  Model model{
      .architecture = "gpt2", .sizes = sizes, .held = sizes, .part = {}, .parameter_blocks = {}, .compute_blocks = {}};
  const Stds stds = stds_of(config, sizes);
  gpt2_add_embedding(model, stds);
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    const ParamBlock block{model.param_blocks()};
    model.parameter_blocks.push_back(gpt2_layer_parameters(sizes, layer, stds));
    model.compute_blocks.push_back(gpt2_layer_stages(fmt::format("b{}", layer), block));
  }
  gpt2_add_head(model, stds);
  return model;
}

}  // namespace trireme::model
