// SPDX-License-Identifier: Apache-2.0
#include "support/reference/plain_llama.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace trireme::test {
namespace {

struct CosSin {
  at::Tensor cos, sin;  // [T, head_dim]
};

at::Tensor yarn_frequencies(const at::Tensor& plain, double theta, std::int64_t head_dim,
                            const config::RopeScaling& s) {
  const auto dim = static_cast<double>(head_dim);
  const auto boundary = [&](double turns) {
    const double context = static_cast<double>(s.original_max_position_embeddings);
    return dim * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = boundary(s.beta_fast), high = boundary(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(head_dim / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  return plain / s.factor * ramp + plain * (1 - ramp);
}

/// RoPE of one kind of layer.
struct RopeOf {
  double theta;
  std::optional<config::RopeScaling> scaling;
};

at::Tensor inverse_frequencies(RopeOf rope, std::int64_t width, std::int64_t positions) {
  if (rope.scaling && rope.scaling->type == config::RopeType::dynamic) {
    const config::RopeScaling& s = *rope.scaling;
    const double beyond =
        std::max(0.0, static_cast<double>(positions) / static_cast<double>(s.original_max_position_embeddings) - 1);
    rope.theta *= std::pow(1 + s.factor * beyond, static_cast<double>(width) / static_cast<double>(width - 2));
    rope.scaling.reset();
  }
  const at::Tensor exponent = at::arange(0, width, 2, at::kFloat) / static_cast<double>(width);
  const at::Tensor plain = 1.0 / at::pow(rope.theta, exponent);
  if (!rope.scaling) return plain;
  const config::RopeScaling& s = *rope.scaling;
  if (s.type == config::RopeType::linear) return plain / s.factor;
  if (s.type == config::RopeType::yarn) return yarn_frequencies(plain, rope.theta, width, s);
  if (s.type == config::RopeType::longrope) {
    const auto& factors = positions > s.original_max_position_embeddings ? s.long_factor : s.short_factor;
    return plain / at::tensor(factors, at::kDouble).to(plain.scalar_type());
  }
  const auto context = static_cast<double>(s.original_max_position_embeddings);
  const at::Tensor wavelength = 2 * std::numbers::pi / plain;
  const at::Tensor smooth = (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * plain / s.factor + smooth * plain;
  const at::Tensor is_long = wavelength > context / s.low_freq_factor;
  const at::Tensor is_short = wavelength < context / s.high_freq_factor;
  return at::where(is_long, plain / s.factor, at::where(is_short, plain, blended));
}

double amplitude(const std::optional<config::RopeScaling>& s) {
  const bool longrope = s && s->type == config::RopeType::longrope;
  if (!s || (s->type != config::RopeType::yarn && !longrope)) return 1;
  if (s->attention_factor > 0) return s->attention_factor;
  const double stretch = std::log(s->factor);
  return longrope ? std::sqrt(1 + stretch / std::log(static_cast<double>(s->original_max_position_embeddings)))
                  : 1 + 0.1 * stretch;
}

/// neighbours: the angle of a pair stands at both of its elements, which are next to each other.
CosSin rotary(const RopeOf& rope, std::int64_t width, std::int64_t positions, bool neighbours) {
  const at::Tensor angles =
      at::arange(positions, at::kFloat).unsqueeze(1) * inverse_frequencies(rope, width, positions).unsqueeze(0);
  const at::Tensor both = neighbours ? angles.repeat_interleave(2, 1) : at::cat({angles, angles}, 1);
  const double times = amplitude(rope.scaling);
  return {both.cos() * times, both.sin() * times};
}

at::Tensor turned(const at::Tensor& x, bool neighbours) {
  if (neighbours) {
    const at::Tensor pairs = x.unflatten(-1, {-1, 2});
    return at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  }
  const std::int64_t half = x.size(-1) / 2;
  return at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * (x * at::rsqrt(x.pow(2).mean(-1, true) + eps));
}

at::Tensor project(const at::Tensor& x, const at::Tensor& weight) { return x.matmul(weight.t()); }

/// One model while it runs: its sizes, and its parameters by short names.
struct LlamaForward {
  const config::Model& model;
  const Parameters& parameters;
  const at::Tensor& unseen;
  const std::string& family = model.architecture;
  bool gemma = family.starts_with("gemma");
  bool gemma23 = family == "gemma2" || family == "gemma3";
  bool olmo = family == "olmo2" || family == "olmo3";
  bool behind_only = olmo || family == "exaone4";  ///< norms stand behind branches
  bool latent = family == "deepseek_v3" || family == "glm4_moe_lite" || family == "youtu";
  bool neighbours = family == "glm" || family == "glm4" || family == "helium" || family == "ernie4_5" ||
                    (latent && model.rope_interleave);
  std::int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.hidden_size / model.heads;
  std::int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  PlainRouter* router = nullptr;  ///< where its losses are summed
  const PlainFp8& fp8;
  std::string layer{};
  std::int64_t index = 0;  ///< of the layer

  [[nodiscard]] const at::Tensor& of_layer(const std::string& name) const {
    return parameters.at(layer + name + ".weight");
  }

  /// A linear layer, with its bias if there is one.
  [[nodiscard]] at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const auto bias = parameters.find(layer + name + ".bias");
    const at::Tensor y = project(x, of_layer(name));
    return bias == parameters.end() ? y : y + bias->second;
  }

  /// Linear layers of x, one output each; units: what each output is divided by over tensor ranks.
  [[nodiscard]] std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<std::string>& names,
                                                const std::vector<std::int64_t>& units) const {
    std::vector<at::Tensor> out, weights, biases;
    for (const std::string& name : names) {
      if (!fp8.takes(layer + name + ".weight")) {
        out.push_back(linear(x, name));
        continue;
      }
      const auto bias = parameters.find(layer + name + ".bias");
      weights.push_back(of_layer(name));
      biases.push_back(bias == parameters.end() ? at::Tensor() : bias->second);
    }
    return weights.empty() ? out : plain_fp8_joint(x, weights, biases, units, fp8);
  }

  /// A linear layer whose input is divided over tensor ranks.
  [[nodiscard]] at::Tensor sum_of_ranks(const at::Tensor& x, const std::string& name) const {
    if (!fp8.takes(layer + name + ".weight")) return linear(x, name);
    const auto bias = parameters.find(layer + name + ".bias");
    const at::Tensor sum = plain_fp8_sum(x, of_layer(name), fp8);
    return bias == parameters.end() ? sum : sum + bias->second;
  }

  /// The norm whose parameters begin with `name`.
  [[nodiscard]] at::Tensor normed(const at::Tensor& x, const std::string& name) const {
    const at::Tensor& weight = parameters.at(name + ".weight");
    if (family == "stablelm" || family == "starcoder2")
      return at::layer_norm(x, {x.size(-1)}, weight, parameters.at(name + ".bias"), model.norm_eps);
    return rms_norm(x, gemma ? weight + 1 : weight, model.norm_eps);
  }

  /// OLMo norms all heads of a token together.
  [[nodiscard]] at::Tensor normed_over_width(const at::Tensor& x, const std::string& name) const {
    return olmo || family == "olmoe" ? rms_norm(x, of_layer(name), model.norm_eps) : x;
  }

  [[nodiscard]] bool slides() const {
    const std::vector<std::string>& types = model.layer_types;
    return model.sliding_window > 0 &&
           (types.empty() || types[static_cast<std::size_t>(index) % types.size()] == "sliding_attention");
  }

  /// Positions masked in the layer's attention, including those before its window.
  [[nodiscard]] at::Tensor hidden(std::int64_t positions) const {
    if (!slides()) return unseen;
    const at::Tensor far = at::ones({positions, positions}, at::kBool).tril(-model.sliding_window);
    return at::logical_or(unseen, far);
  }

  /// [B, T, heads * head_dim] as [B, heads, T, head_dim].
  [[nodiscard]] at::Tensor heads(const at::Tensor& x, std::int64_t count) const {
    return x.view({x.size(0), x.size(1), count, head_dim}).transpose(1, 2);
  }

  [[nodiscard]] at::Tensor rotated(const at::Tensor& x) const {
    if (model.no_rope_interval > 0 && (index + 1) % model.no_rope_interval == 0) return x;
    if (family == "exaone4" && model.sliding_window > 0 && !slides()) return x;
    RopeOf rope{.theta = model.rope_theta, .scaling = model.rope_scaling};
    if ((family == "gemma3" || family == "olmo3") && slides())
      rope = {.theta = model.rope_local_theta > 0 ? model.rope_local_theta : model.rope_theta, .scaling = {}};
    const auto width = static_cast<std::int64_t>(static_cast<double>(head_dim) * model.partial_rotary_factor);
    const auto [cos, sin] = rotary(rope, width, x.size(2), neighbours);
    const at::Tensor turns = x.slice(-1, 0, width);
    return at::cat({turns * cos + turned(turns, neighbours) * sin, x.slice(-1, width)}, -1);
  }

  [[nodiscard]] at::Tensor scores(const at::Tensor& q, const at::Tensor& k) const {
    const auto divisor = static_cast<double>(model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar : head_dim);
    const double scale = model.attention_multiplier > 0 ? model.attention_multiplier : 1 / std::sqrt(divisor);
    return capped(q.matmul(k.transpose(2, 3)) * scale, model.attn_logit_softcapping);
  }

  static at::Tensor capped(const at::Tensor& x, double cap) { return cap > 0 ? at::tanh(x / cap) * cap : x; }

  /// x [B, heads, T, rope_dim] turned.
  [[nodiscard]] at::Tensor turned_wholly(const at::Tensor& x) const {
    const auto [cos, sin] =
        rotary({.theta = model.rope_theta, .scaling = model.rope_scaling}, x.size(-1), x.size(2), neighbours);
    return x * cos + turned(x, neighbours) * sin;
  }

  /// DeepSeek-V2's: keys and values of all heads from one latent, whose norm's eps is 1e-6 in every model.
  [[nodiscard]] at::Tensor latent_attention(const at::Tensor& h) const {
    const std::int64_t positions = h.size(1), nope = model.nope_dim, width = nope + model.rope_dim;
    const auto norm = [&](const at::Tensor& x, const char* name) { return rms_norm(x, of_layer(name), 1e-6); };
    const auto split = [&](const at::Tensor& x, std::int64_t count) {
      return x.unflatten(-1, {count, -1}).transpose(1, 2);
    };
    const auto product = [&](const at::Tensor& x, const char* name) { return linears(x, {name}, {model.heads})[0]; };
    const bool compresses = model.q_rank > 0;
    const at::Tensor of_queries =
        compresses ? norm(linear(h, "self_attn.q_a_proj"), "self_attn.q_a_layernorm") : at::Tensor();
    const at::Tensor down = linear(h, "self_attn.kv_a_proj_with_mqa");
    const at::Tensor q =
        split(compresses ? product(of_queries, "self_attn.q_b_proj") : product(h, "self_attn.q_proj"), model.heads);
    const at::Tensor of_keys = norm(down.slice(-1, 0, model.kv_rank), "self_attn.kv_a_layernorm");
    const at::Tensor kv = split(linear(of_keys, "self_attn.kv_b_proj"), model.heads);
    const at::Tensor shared = turned_wholly(down.slice(-1, model.kv_rank).unsqueeze(1));
    double scale = 1 / std::sqrt(static_cast<double>(width));
    if (const auto& s = model.rope_scaling; s && s->type == config::RopeType::yarn)
      scale *= std::pow(1 + 0.1 * s->mscale_all_dim * std::log(s->factor), 2);
    const at::Tensor scores = q.slice(-1, 0, nope).matmul(kv.slice(-1, 0, nope).transpose(2, 3)) +
                              turned_wholly(q.slice(-1, nope)).matmul(shared.transpose(2, 3));
    const at::Tensor weights =
        (scores * scale).masked_fill(hidden(positions), -std::numeric_limits<double>::infinity()).softmax(-1);
    return sum_of_ranks(weights.matmul(kv.slice(-1, nope)).transpose(1, 2).flatten(2), "self_attn.o_proj");
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& h) const {
    if (latent) return latent_attention(h);
    const std::int64_t positions = h.size(1);
    const std::vector<at::Tensor> qkv =
        linears(h, {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, {model.heads, kv_heads, kv_heads});
    // Tensor ranks that hold the same head have a copy of it each.
    const std::int64_t held = qkv[1].size(-1) / head_dim;
    at::Tensor q = heads(normed_over_width(qkv[0], "self_attn.q_norm"), model.heads);
    at::Tensor k = heads(normed_over_width(qkv[1], "self_attn.k_norm"), held);
    at::Tensor v = heads(qkv[2], held);
    if (family.starts_with("qwen3") || family == "gemma3" || family == "exaone4" || family == "dots1" ||
        model.qk_norm) {
      q = normed(q, layer + "self_attn.q_norm");
      k = normed(k, layer + "self_attn.k_norm");
    }
    q = rotated(q);
    if (family == "ministral3") {
      const config::RopeScaling& s = *model.rope_scaling;
      const at::Tensor periods = at::floor(at::arange(positions, at::kDouble) / s.original_max_position_embeddings);
      q = q * (1 + s.llama_4_scaling_beta * at::log1p(periods)).unsqueeze(1).to(q.scalar_type());
    }
    k = rotated(k).repeat_interleave(model.heads / held, 1);
    v = v.repeat_interleave(model.heads / held, 1);
    const at::Tensor weights =
        scores(q, k).masked_fill(hidden(positions), -std::numeric_limits<double>::infinity()).softmax(-1);
    const at::Tensor mixed = weights.matmul(v).transpose(1, 2).reshape({h.size(0), positions, model.heads * head_dim});
    return sum_of_ranks(mixed, "self_attn.o_proj");
  }

  [[nodiscard]] at::Tensor mlp(const at::Tensor& h) const {
    if (model.experts > 0 && index >= model.dense_layers)
      return plain_experts(model, parameters, layer, h, router, fp8);
    if (family == "starcoder2")
      return sum_of_ranks(at::gelu(linears(h, {"mlp.c_fc"}, {model.intermediate_size})[0], "tanh"), "mlp.c_proj");
    const std::vector<at::Tensor> both =
        linears(h, {"mlp.gate_proj", "mlp.up_proj"}, {model.intermediate_size, model.intermediate_size});
    const at::Tensor inner = (gemma ? at::gelu(both[0], "tanh") : at::silu(both[0])) * both[1];
    return sum_of_ranks(inner, "mlp.down_proj");
  }

  /// x + branch(x), with norms before the branch, after it or both.
  template <class Branch>
  [[nodiscard]] at::Tensor added(const at::Tensor& x, const char* before, const char* behind, Branch branch) const {
    at::Tensor y = branch(before == nullptr ? x : normed(x, layer + before));
    if (behind != nullptr) y = normed(y, layer + behind);
    return x + model.residual_multiplier * y;
  }

  at::Tensor run(const at::Tensor& tokens) {
    const at::Tensor& table = parameters.at("model.embed_tokens.weight");
    at::Tensor x = at::embedding(table, tokens) * model.embedding_multiplier;
    if (gemma) x = x * std::sqrt(static_cast<double>(model.hidden_size));
    const bool glm4 = family == "glm4";
    const char* const attention_behind = gemma23 || behind_only ? "post_attention_layernorm"
                                         : glm4                 ? "post_self_attn_layernorm"
                                                                : nullptr;
    const char* const mlp_before = behind_only ? nullptr
                                   : gemma23   ? "pre_feedforward_layernorm"
                                               : "post_attention_layernorm";
    const char* const mlp_behind = gemma23 || behind_only ? "post_feedforward_layernorm"
                                   : glm4                 ? "post_mlp_layernorm"
                                                          : nullptr;
    for (std::int64_t i = 0; i < model.layers; ++i) {
      layer = "model.layers." + std::to_string(i) + ".";
      index = i;
      x = added(x, behind_only ? nullptr : "input_layernorm", attention_behind,
                [&](const at::Tensor& h) { return attention(h); });
      x = added(x, mlp_before, mlp_behind, [&](const at::Tensor& h) { return mlp(h); });
    }
    const at::Tensor products =
        project(normed(x, "model.norm"), model.tie_embeddings ? table : parameters.at("lm_head.weight"));
    return capped(products / model.logits_scaling, model.final_logit_softcapping);
  }
};

}  // namespace

at::Tensor plain_logits(const config::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                        const at::Tensor& unseen, PlainRouter* router, const PlainFp8& fp8) {
  if (model.architecture == "gpt2") return plain_gpt2_logits(model, parameters, tokens, unseen, fp8);
  return LlamaForward{.model = model, .parameters = parameters, .unseen = unseen, .router = router, .fp8 = fp8}.run(
      tokens);
}

}  // namespace trireme::test
