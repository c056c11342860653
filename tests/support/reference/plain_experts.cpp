// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts as Hugging Face's Mixtral, Qwen3-MoE and OLMoE have them, and the losses of their routers
// (DeepSeek-V3 2024, equations 17 to 20; ST-MoE, Zoph et al. 2022).
#include <ATen/TensorOperators.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "support/reference/plain_llama.hpp"

namespace trireme::test {
namespace {

/// chosen: [N, k].
void add_router_losses(const config::Model& model, const at::Tensor& logits, const at::Tensor& chosen,
                       std::int64_t sequences, PlainRouter& router) {
  const std::int64_t length = logits.size(0) / sequences, k = model.experts_per_token;
  const at::Tensor scores = logits.to(at::kDouble).softmax(-1);
  const at::Tensor is_chosen = at::zeros_like(scores).scatter(1, chosen, 1.0);
  const double scale = static_cast<double>(model.experts) / static_cast<double>(k * length);
  const at::Tensor f = is_chosen.view({sequences, length, -1}).sum(1) * scale;
  const at::Tensor p = scores.view({sequences, length, -1}).mean(1);
  router.balance = router.balance + (f * p).sum() / sequences;
  router.squared_log_z = router.squared_log_z + at::logsumexp(logits.to(at::kDouble), 1).pow(2).mean();
  if (k == model.experts) return;
  const at::Tensor best = std::get<0>(at::topk(logits.detach(), k + 1));
  router.margin =
      std::min(router.margin, (best.select(1, k - 1) - best.select(1, k)).min().to(at::kDouble).item<double>());
}

}  // namespace

at::Tensor plain_experts(const config::Model& model, const Parameters& parameters, const std::string& layer,
                         const at::Tensor& h, PlainRouter* router) {
  const bool mixtral = model.architecture == "mixtral";
  const std::string block = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  const auto project = [&](const at::Tensor& x, const std::string& name) {
    return x.matmul(parameters.at(block + name + ".weight").t());
  };
  const at::Tensor tokens = h.flatten(0, 1), logits = project(tokens, "gate");
  // Of equal ones the lower experts: topk leaves that open.
  const auto [sorted, order] = at::sort(logits.softmax(-1), /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const at::Tensor values = sorted.slice(1, 0, model.experts_per_token);
  const at::Tensor chosen = order.slice(1, 0, model.experts_per_token);
  // Of one expert it is 1, whatever the logits: their gradient is nothing, not rounding.
  const at::Tensor normalized =
      model.experts_per_token == 1 ? at::ones_like(values) : values / values.sum(1, /*keepdim=*/true);
  const at::Tensor weights = at::zeros_like(logits).scatter(1, chosen, model.router_normalize ? normalized : values);
  at::Tensor sum = at::zeros_like(tokens);
  for (std::int64_t e = 0; e < model.experts; ++e) {
    const std::string expert = "experts." + std::to_string(e) + ".";
    const at::Tensor inner = at::silu(project(tokens, expert + (mixtral ? "w1" : "gate_proj"))) *
                             project(tokens, expert + (mixtral ? "w3" : "up_proj"));
    sum = sum + weights.slice(1, e, e + 1) * project(inner, expert + (mixtral ? "w2" : "down_proj"));
  }
  if (router != nullptr) add_router_losses(model, logits, chosen, h.size(0), *router);
  return sum.view_as(h);
}

}  // namespace trireme::test
