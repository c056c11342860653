// SPDX-License-Identifier: Apache-2.0
// GPT-2 written from Hugging Face's definition: learned positions, LayerNorm, biases, GELU in its tanh form.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/reference/plain_llama.hpp"

namespace trireme::test {
namespace {

struct Gpt2Forward {
  const config::Model& model;
  const Parameters& parameters;
  const at::Tensor& unseen;
  const PlainFp8& fp8;
  std::string layer{};

  [[nodiscard]] const at::Tensor& of(const std::string& name) const { return parameters.at("transformer." + name); }
  [[nodiscard]] at::Tensor norm(const at::Tensor& x, const std::string& name) const {
    return at::layer_norm(x, {x.size(-1)}, of(name + ".weight"), of(name + ".bias"), model.norm_eps);
  }
  [[nodiscard]] at::Tensor project(const at::Tensor& x, const std::string& name) const {
    return x.matmul(of(name + ".weight").t()) + of(name + ".bias");
  }
  [[nodiscard]] bool in_fp8(const std::string& name) const { return fp8.takes("transformer." + name + ".weight"); }

  /// Outputs, or each of q, k and v side by side, that tensor ranks divide by `unit`.
  [[nodiscard]] at::Tensor divided(const at::Tensor& x, const std::string& name, std::int64_t parts,
                                   std::int64_t unit) const {
    if (!in_fp8(name)) return project(x, name);
    const std::vector<std::int64_t> units(static_cast<std::size_t>(parts), unit);
    return at::cat(plain_fp8_joint(x, of(name + ".weight").chunk(parts), of(name + ".bias").chunk(parts), units, fp8),
                   -1);
  }
  /// Product of an input that tensor ranks divide.
  [[nodiscard]] at::Tensor summed(const at::Tensor& x, const std::string& name) const {
    return in_fp8(name) ? plain_fp8_sum(x, of(name + ".weight"), fp8) + of(name + ".bias") : project(x, name);
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& h) const {
    const std::int64_t rows = h.size(0), positions = h.size(1), width = h.size(2);
    const at::Tensor qkv = divided(h, layer + "attn.c_attn", 3, model.heads);
    const auto heads = [&](std::int64_t part) {
      return qkv.slice(2, part * width, (part + 1) * width)
          .reshape({rows, positions, model.heads, width / model.heads})
          .transpose(1, 2);
    };
    const at::Tensor scores =
        heads(0).matmul(heads(1).transpose(2, 3)) / std::sqrt(static_cast<double>(width / model.heads));
    const at::Tensor weights = scores.masked_fill(unseen, -std::numeric_limits<double>::infinity()).softmax(-1);
    return summed(weights.matmul(heads(2)).transpose(1, 2).reshape({rows, positions, width}), layer + "attn.c_proj");
  }

  at::Tensor run(const at::Tensor& tokens) {
    at::Tensor x = at::embedding(of("wte.weight"), tokens) + of("wpe.weight").slice(0, 0, tokens.size(1));
    for (std::int64_t i = 0; i < model.layers; ++i) {
      layer = "h." + std::to_string(i) + ".";
      x = x + attention(norm(x, layer + "ln_1"));
      const at::Tensor inner = divided(norm(x, layer + "ln_2"), layer + "mlp.c_fc", 1, model.intermediate_size);
      x = x + summed(at::gelu(inner, "tanh"), layer + "mlp.c_proj");
    }
    return norm(x, "ln_f").matmul((model.tie_embeddings ? of("wte.weight") : parameters.at("lm_head.weight")).t());
  }
};

}  // namespace

at::Tensor plain_gpt2_logits(const config::Model& model, const Parameters& parameters, const at::Tensor& tokens,
                             const at::Tensor& unseen, const PlainFp8& fp8) {
  return Gpt2Forward{.model = model, .parameters = parameters, .unseen = unseen, .fp8 = fp8}.run(tokens);
}

}  // namespace trireme::test
