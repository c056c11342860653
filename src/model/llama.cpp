// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

namespace {

constexpr std::int64_t largest_size = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_layers = 65536;
constexpr double largest_model = 0x1p53;  // elements; their bytes still fit 64 bits with room for optimizer state

std::int64_t nearest_divisor(std::int64_t value, std::int64_t wanted) {
  const std::int64_t start = std::min(wanted, value);
  for (std::int64_t distance = 0; distance < start; ++distance) {
    if (value % (start - distance) == 0) return start - distance;
    if (value % (start + distance) == 0) return start + distance;
  }
  return 1;
}

void check_given(const config::Model& c, Mistakes& mistakes) {
  const auto positive = [&](std::string_view key, std::int64_t value, std::int64_t largest = largest_size) {
    if (value == 0) mistakes.add(fmt::format("model.{} is not given; it must be at least 1", key));
    if (value < 0) mistakes.add(fmt::format("model.{} = {}; it must be at least 1", key, value));
    if (value > largest) mistakes.add(fmt::format("model.{} = {}; it must be at most {}", key, value, largest));
  };
  positive("vocab_size", c.vocab_size);
  positive("hidden_size", c.hidden_size);
  positive("intermediate_size", c.intermediate_size);
  positive("layers", c.layers, most_layers);
  positive("heads", c.heads);
  if (c.kv_heads != 0) positive("kv_heads", c.kv_heads);
  if (c.head_dim != 0) positive("head_dim", c.head_dim);
}

void check_heads(const config::Model& c, Mistakes& mistakes) {
  if (c.head_dim == 0 && c.hidden_size % c.heads != 0) {
    mistakes.add(
        fmt::format("model.hidden_size = {} is not a multiple of model.heads = {}; use hidden_size = {} or {}, or set "
                    "model.head_dim",
                    c.hidden_size, c.heads, std::max(c.heads, c.hidden_size / c.heads * c.heads),
                    (c.hidden_size / c.heads + 1) * c.heads));
  } else if (const std::int64_t head_dim = c.head_dim == 0 ? c.hidden_size / c.heads : c.head_dim; head_dim % 2 != 0) {
    mistakes.add(fmt::format("model.head_dim = {} is odd; rotary embedding turns pairs, use {} or {}", head_dim,
                             std::max<std::int64_t>(2, head_dim - 1), head_dim + 1));
  }
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0) {
    mistakes.add(fmt::format("model.kv_heads = {} does not divide model.heads = {}; the nearest that does is {}",
                             c.kv_heads, c.heads, nearest_divisor(c.heads, c.kv_heads)));
  }
}

void check_numbers(const config::Model& c, Mistakes& mistakes) {
  const auto above_zero = [&](std::string_view key, double value) {
    if (!(value > 0) || !std::isfinite(value))
      mistakes.add(fmt::format("model.{} = {}; it must be above 0", key, value));
  };
  above_zero("norm_eps", c.norm_eps);
  above_zero("rope_theta", c.rope_theta);
  if (!(c.init_std >= 0) || !std::isfinite(c.init_std)) {
    mistakes.add(fmt::format("model.init_std = {}; it must be at least 0", c.init_std));
  }
  if (!c.rope_scaling) return;
  const config::RopeScaling& scaling = *c.rope_scaling;
  above_zero("rope_scaling.factor", scaling.factor);
  above_zero("rope_scaling.low_freq_factor", scaling.low_freq_factor);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor) || !std::isfinite(scaling.high_freq_factor)) {
    mistakes.add(fmt::format("model.rope_scaling.high_freq_factor = {}; it must be above low_freq_factor = {}",
                             scaling.high_freq_factor, scaling.low_freq_factor));
  }
  if (scaling.original_max_position_embeddings < 1) {
    mistakes.add(fmt::format("model.rope_scaling.original_max_position_embeddings = {}; it must be at least 1",
                             scaling.original_max_position_embeddings));
  }
}

void check_total(const Sizes& s, Mistakes& mistakes) {
  const auto hidden = static_cast<double>(s.hidden);
  const double head_rows = 2.0 * static_cast<double>(s.heads + s.kv_heads) * static_cast<double>(s.head_dim);
  const double layer = hidden * (head_rows + 3.0 * static_cast<double>(s.intermediate) + 2.0);
  const double total = static_cast<double>(s.layers) * layer + 2.0 * static_cast<double>(s.vocab) * hidden + hidden;
  if (total > largest_model) {
    mistakes.add(fmt::format("the model has {:.3g} parameters; at most {:.3g} can be counted, use smaller sizes", total,
                             largest_model));
  }
}

Sizes completed(const config::Model& c) {
  Mistakes mistakes;
  check_given(c, mistakes);
  if (mistakes.empty()) check_heads(c, mistakes);
  check_numbers(c, mistakes);
  mistakes.raise("the model's sizes do not fit together");
  const Sizes sizes{.vocab = c.vocab_size,
                    .hidden = c.hidden_size,
                    .intermediate = c.intermediate_size,
                    .layers = c.layers,
                    .heads = c.heads,
                    .kv_heads = c.kv_heads == 0 ? c.heads : c.kv_heads,
                    .head_dim = c.head_dim == 0 ? c.hidden_size / c.heads : c.head_dim,
                    .norm_eps = c.norm_eps,
                    .rope_theta = c.rope_theta,
                    .rope_scaling = c.rope_scaling,
                    .tied = c.tie_embeddings};
  check_total(sizes, mistakes);
  mistakes.raise("the model is too large");
  return sizes;
}

struct Stds {
  double plain;
  double residual;  ///< of the projections that write to the residual stream
};

Parameter norm(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .filling = Filling::ones, .std = 0};
}

Parameter linear(std::string name, std::int64_t out, std::int64_t in, double std) {
  return {.name = std::move(name), .shape = {out, in}, .filling = Filling::normal, .std = std};
}

ParameterBlock layer_parameters(const Sizes& s, std::int64_t layer, Stds stds) {
  const auto named = [&](std::string_view name) { return fmt::format("model.layers.{}.{}.weight", layer, name); };
  const std::int64_t q_rows = s.heads * s.head_dim;
  const std::int64_t kv_rows = s.kv_heads * s.head_dim;
  return {.name = fmt::format("b{}", layer),
          .parameters = {norm(named("input_layernorm"), s.hidden),
                         linear(named("self_attn.q_proj"), q_rows, s.hidden, stds.plain),
                         linear(named("self_attn.k_proj"), kv_rows, s.hidden, stds.plain),
                         linear(named("self_attn.v_proj"), kv_rows, s.hidden, stds.plain),
                         linear(named("self_attn.o_proj"), s.hidden, q_rows, stds.residual),
                         norm(named("post_attention_layernorm"), s.hidden),
                         linear(named("mlp.gate_proj"), s.intermediate, s.hidden, stds.plain),
                         linear(named("mlp.up_proj"), s.intermediate, s.hidden, stds.plain),
                         linear(named("mlp.down_proj"), s.hidden, s.intermediate, stds.residual)}};
}

std::vector<ParamRef> refs(ParamBlock block, int first, int count) {
  std::vector<ParamRef> list;
  for (int i = first; i < first + count; ++i) list.push_back({.block = block, .index = i});
  return list;
}

ComputeBlock layer_stages(std::string name, ParamBlock block) {
  return {.name = std::move(name),
          .stages = {{.name = "attention", .kind = StageKind::attention, .parameters = refs(block, 0, 5)},
                     {.name = "mlp", .kind = StageKind::mlp, .parameters = refs(block, 5, 4)}},
          .reads = {block}};
}

void add_embedding(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  model.parameter_blocks.push_back({.name = "embedding",
                                    .parameters = {linear("model.embed_tokens.weight", s.vocab, s.hidden, stds.plain)},
                                    .backward_reads = s.tied});
  const ParamBlock block{0};
  model.compute_blocks.push_back(
      {.name = "embedding",
       .stages = {{.name = "embedding", .kind = StageKind::embedding, .parameters = refs(block, 0, 1)}},
       .reads = {block}});
}

void add_head(Model& model, Stds stds) {
  const Sizes& s = model.sizes;
  const ParamBlock embedding{0};
  const ParamBlock head{model.param_blocks()};
  ParameterBlock parameters{.name = "head", .parameters = {norm("model.norm.weight", s.hidden)}};
  ComputeBlock block{.name = "head", .stages = {}, .reads = {head}};
  ParamRef projection{.block = head, .index = 1};
  if (s.tied) {
    projection = {.block = embedding, .index = 0};
    block.reads.push_back(embedding);
  } else {
    parameters.parameters.push_back(linear("lm_head.weight", s.vocab, s.hidden, stds.plain));
  }
  block.stages = {{.name = "head", .kind = StageKind::head, .parameters = {{.block = head, .index = 0}, projection}}};
  model.parameter_blocks.push_back(std::move(parameters));
  model.compute_blocks.push_back(std::move(block));
}

}  // namespace

Model build_llama(const config::Model& config) {
  Model model{.architecture = "llama", .sizes = completed(config), .parameter_blocks = {}, .compute_blocks = {}};
  const double depth = std::sqrt(2.0 * static_cast<double>(model.sizes.layers));
  const double scale = config.init == config::Init::depth_scaled ? 1.0 / depth : 1.0;
  const Stds stds{.plain = config.init_std, .residual = config.init_std * scale};
  add_embedding(model, stds);
  for (std::int64_t layer = 0; layer < model.sizes.layers; ++layer) {
    const ParamBlock block{model.param_blocks()};
    model.parameter_blocks.push_back(layer_parameters(model.sizes, layer, stds));
    model.compute_blocks.push_back(layer_stages(fmt::format("b{}", layer), block));
  }
  add_head(model, stds);
  return model;
}

}  // namespace trireme::model
