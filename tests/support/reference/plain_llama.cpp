// SPDX-License-Identifier: Apache-2.0
#include "support/reference/plain_llama.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>

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

at::Tensor inverse_frequencies(const config::Model& model, std::int64_t head_dim) {
  const at::Tensor exponent = at::arange(0, head_dim, 2, at::kFloat) / static_cast<double>(head_dim);
  const at::Tensor plain = 1.0 / at::pow(model.rope_theta, exponent);
  if (!model.rope_scaling) return plain;
  const config::RopeScaling& s = *model.rope_scaling;
  if (s.type == config::RopeType::linear) return plain / s.factor;
  if (s.type == config::RopeType::yarn) return yarn_frequencies(plain, model.rope_theta, head_dim, s);
  const auto context = static_cast<double>(s.original_max_position_embeddings);
  const at::Tensor wavelength = 2 * std::numbers::pi / plain;
  const at::Tensor smooth = (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  const at::Tensor blended = (1 - smooth) * plain / s.factor + smooth * plain;
  const at::Tensor is_long = wavelength > context / s.low_freq_factor;
  const at::Tensor is_short = wavelength < context / s.high_freq_factor;
  return at::where(is_long, plain / s.factor, at::where(is_short, plain, blended));
}

CosSin rotary(const config::Model& model, std::int64_t head_dim, std::int64_t positions) {
  const at::Tensor angles =
      at::arange(positions, at::kFloat).unsqueeze(1) * inverse_frequencies(model, head_dim).unsqueeze(0);
  const at::Tensor both = at::cat({angles, angles}, 1);
  double times = 1;
  if (model.rope_scaling && model.rope_scaling->type == config::RopeType::yarn)
    times = model.rope_scaling->attention_factor > 0 ? model.rope_scaling->attention_factor
                                                     : 1 + 0.1 * std::log(model.rope_scaling->factor);
  return {both.cos() * times, both.sin() * times};
}

at::Tensor rotate_half(const at::Tensor& x) {
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
  std::int64_t head_dim = model.head_dim > 0 ? model.head_dim : model.hidden_size / model.heads;
  std::int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  std::string layer{};
  std::int64_t index = 0;  ///< of the layer

  [[nodiscard]] const at::Tensor& of_layer(const std::string& name) const {
    return parameters.at(layer + name + ".weight");
  }

  /// A linear layer, with its bias where there is one.
  [[nodiscard]] at::Tensor linear(const at::Tensor& x, const std::string& name) const {
    const auto bias = parameters.find(layer + name + ".bias");
    const at::Tensor y = project(x, of_layer(name));
    return bias == parameters.end() ? y : y + bias->second;
  }

  /// OLMo 2 norms all heads of a token together.
  [[nodiscard]] at::Tensor normed_over_width(const at::Tensor& x, const std::string& name) const {
    return model.architecture == "olmo2" ? rms_norm(x, of_layer(name), model.norm_eps) : x;
  }

  /// What attention of the layer does not see: also what lies before its window.
  [[nodiscard]] at::Tensor hidden(std::int64_t positions) const {
    const std::vector<std::string>& types = model.layer_types;
    const bool slides = types.empty() || types[static_cast<std::size_t>(index) % types.size()] == "sliding_attention";
    if (model.sliding_window == 0 || !slides) return unseen;
    const at::Tensor far = at::ones({positions, positions}, at::kBool).tril(-model.sliding_window);
    return at::logical_or(unseen, far);
  }

  /// [B, T, heads * head_dim] as [B, heads, T, head_dim].
  [[nodiscard]] at::Tensor heads(const at::Tensor& x, std::int64_t count) const {
    return x.view({x.size(0), x.size(1), count, head_dim}).transpose(1, 2);
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& h) const {
    const std::int64_t positions = h.size(1);
    const auto [cos, sin] = rotary(model, head_dim, positions);
    at::Tensor q = heads(normed_over_width(linear(h, "self_attn.q_proj"), "self_attn.q_norm"), model.heads);
    at::Tensor k = heads(normed_over_width(linear(h, "self_attn.k_proj"), "self_attn.k_norm"), kv_heads);
    at::Tensor v = heads(linear(h, "self_attn.v_proj"), kv_heads);
    if (model.architecture == "qwen3") {
      q = rms_norm(q, of_layer("self_attn.q_norm"), model.norm_eps);
      k = rms_norm(k, of_layer("self_attn.k_norm"), model.norm_eps);
    }
    if (model.no_rope_interval == 0 || (index + 1) % model.no_rope_interval != 0) {
      q = q * cos + rotate_half(q) * sin;
      k = k * cos + rotate_half(k) * sin;
    }
    k = k.repeat_interleave(model.heads / kv_heads, 1);
    v = v.repeat_interleave(model.heads / kv_heads, 1);
    const at::Tensor scores = q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(head_dim));
    const at::Tensor weights =
        scores.masked_fill(hidden(positions), -std::numeric_limits<double>::infinity()).softmax(-1);
    const at::Tensor mixed = weights.matmul(v).transpose(1, 2).reshape({h.size(0), positions, model.heads * head_dim});
    return linear(mixed, "self_attn.o_proj");
  }

  [[nodiscard]] at::Tensor mlp(const at::Tensor& h) const {
    const at::Tensor inner = at::silu(linear(h, "mlp.gate_proj")) * linear(h, "mlp.up_proj");
    return linear(inner, "mlp.down_proj");
  }

  at::Tensor run(const at::Tensor& tokens) {
    const at::Tensor& table = parameters.at("model.embed_tokens.weight");
    at::Tensor x = at::embedding(table, tokens);
    for (std::int64_t i = 0; i < model.layers; ++i) {
      layer = "model.layers." + std::to_string(i) + ".";
      index = i;
      if (model.architecture == "olmo2") {
        x = x + rms_norm(attention(x), of_layer("post_attention_layernorm"), model.norm_eps);
        x = x + rms_norm(mlp(x), of_layer("post_feedforward_layernorm"), model.norm_eps);
        continue;
      }
      x = x + attention(rms_norm(x, of_layer("input_layernorm"), model.norm_eps));
      x = x + mlp(rms_norm(x, of_layer("post_attention_layernorm"), model.norm_eps));
    }
    x = rms_norm(x, parameters.at("model.norm.weight"), model.norm_eps);
    return project(x, model.tie_embeddings ? table : parameters.at("lm_head.weight"));
  }
};

}  // namespace

at::Tensor plain_unseen(const at::Tensor& tokens, std::optional<std::int64_t> document_end) {
  const at::Tensor later = at::ones({tokens.size(1), tokens.size(1)}, at::kBool).triu(1);
  if (!document_end) return later.expand({tokens.size(0), 1, -1, -1});
  const at::Tensor ends = (tokens == *document_end).to(at::kLong);
  const at::Tensor document = ends.cumsum(1) - ends;  // how many ended before
  return at::logical_or(later, document.unsqueeze(2) != document.unsqueeze(1)).unsqueeze(1);
}

at::Tensor plain_logits(const config::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                        const at::Tensor& unseen) {
  if (model.architecture == "gpt2") return plain_gpt2_logits(model, parameters, tokens, unseen);
  return LlamaForward{.model = model, .parameters = parameters, .unseen = unseen}.run(tokens);
}

PlainLoss plain_loss(const config::Model& model, const Parameters& parameters, const PlainBatch& batch) {
  const at::Tensor logits = plain_logits(model, parameters, batch.inputs, batch.unseen);
  const at::Tensor losses =
      at::cross_entropy_loss(logits.view({-1, logits.size(2)}), batch.targets.view({-1}), {}, at::Reduction::None, -1);
  const at::Tensor counted = batch.targets >= 0;
  const at::Tensor squares = at::logsumexp(logits, 2).to(at::kDouble).pow(2) * counted;
  return {.cross_entropy = losses.to(at::kDouble).sum() / counted.sum(),
          .squared_log_z = squares.sum() / counted.sum()};
}

}  // namespace trireme::test
