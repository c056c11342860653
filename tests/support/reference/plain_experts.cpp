// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts as Hugging Face's Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, GLM-4-MoE and dots1 have them, and the
// losses of their routers (DeepSeek-V3 2024, equations 17 to 20; ST-MoE, Zoph et al. 2022).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "support/reference/plain_llama.hpp"

namespace trireme::test {
namespace {

/// Records the smallest distance between the last chosen of `values` [N, M] and the first one not chosen.
void note_margin(const at::Tensor& values, std::int64_t chosen, PlainRouter* router) {
  if (router == nullptr || chosen == values.size(1)) return;
  const at::Tensor best = std::get<0>(at::topk(values.detach(), chosen + 1));
  router->margin = std::min(router->margin,
                            (best.select(1, chosen - 1) - best.select(1, chosen)).min().to(at::kDouble).item<double>());
}

/// Scores for the choice of experts: -inf in groups that are not among a token's best.
at::Tensor in_best_groups(const config::Model& model, const at::Tensor& preference, PlainRouter* router) {
  if (model.router_groups == 1) return preference;
  const at::Tensor grouped = preference.view({preference.size(0), model.router_groups, -1});
  const at::Tensor score = std::get<0>(at::topk(grouped, 2)).sum(-1);
  note_margin(score, model.router_groups_kept, router);
  const at::Tensor best = std::get<1>(at::sort(score, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  const at::Tensor out =
      at::ones_like(score, at::kBool).scatter(1, best.slice(1, 0, model.router_groups_kept), 0).unsqueeze(2);
  return grouped.masked_fill(out, -std::numeric_limits<double>::infinity()).view_as(preference);
}

/// scores: [N, E]; chosen: [N, k].
void add_router_losses(const config::Model& model, const at::Tensor& logits, const at::Tensor& scores,
                       const at::Tensor& chosen, std::int64_t sequences, PlainRouter& router) {
  const std::int64_t length = logits.size(0) / sequences, k = model.experts_per_token;
  const at::Tensor of_all = scores / scores.sum(-1, /*keepdim=*/true);
  const at::Tensor is_chosen = at::zeros_like(of_all).scatter(1, chosen, 1.0);
  const double scale = static_cast<double>(model.experts) / static_cast<double>(k * length);
  const at::Tensor f = is_chosen.view({sequences, length, -1}).sum(1) * scale;
  const at::Tensor p = of_all.view({sequences, length, -1}).mean(1);
  router.balance = router.balance + (f * p).sum() / sequences;
  router.squared_log_z = router.squared_log_z + at::logsumexp(logits.to(at::kDouble), 1).pow(2).mean();
}

}  // namespace

at::Tensor plain_experts(const config::Model& model, const Parameters& parameters, const std::string& layer,
                         const at::Tensor& h, PlainRouter* router, const PlainFp8& fp8) {
  const bool mixtral = model.architecture == "mixtral";
  const bool deepseek = model.architecture == "glm4_moe" || model.architecture == "dots1" ||
                        model.architecture == "deepseek_v3" || model.architecture == "glm4_moe_lite";
  const std::string block = layer + (mixtral ? "block_sparse_moe." : "mlp.");
  const auto project = [&](const at::Tensor& x, const std::string& name) {
    return x.matmul(parameters.at(block + name + ".weight").t());
  };
  const auto network = [&](const at::Tensor& x, const std::string& name, const at::Tensor& weight) {
    const std::string gate = name + (mixtral ? "w1" : "gate_proj"), up = name + (mixtral ? "w3" : "up_proj"),
                      down = name + (mixtral ? "w2" : "down_proj");
    if (fp8.recipe == Fp8::none) {
      const at::Tensor y = project(at::silu(project(x, gate)) * project(x, up), down);
      return weight.defined() ? weight * y : y;
    }
    // Gate and up are one product; what down reads is weighed before it is rounded.
    const auto weight_of = [&](const std::string& of) { return parameters.at(block + of + ".weight"); };
    const at::Tensor both = plain_fp8_product(x, at::cat({weight_of(gate), weight_of(up)}), fp8.recipe);
    const std::vector<at::Tensor> halves = both.chunk(2, -1);
    const at::Tensor inner = at::silu(halves[0]) * halves[1];
    return plain_fp8_product(weight.defined() ? weight * inner : inner, weight_of(down), fp8.recipe);
  };
  const auto scores_of = [&](const at::Tensor& x) { return deepseek ? x.sigmoid() : x.softmax(-1); };
  const at::Tensor tokens = h.flatten(0, 1), logits = project(tokens, "gate"), scores = scores_of(logits);
  at::Tensor preference = deepseek ? scores.detach() : logits.detach();
  if (deepseek) preference = preference + parameters.at(block + "gate.e_score_correction_bias").detach();
  preference = in_best_groups(model, preference, router);
  note_margin(preference, model.experts_per_token, router);
  // Chooses the lower expert among equal ones: topk leaves that open.
  const at::Tensor order = std::get<1>(at::sort(preference, /*stable=*/true, /*dim=*/-1, /*descending=*/true));
  const at::Tensor chosen = order.slice(1, 0, model.experts_per_token), values = scores.gather(1, chosen);
  // A single expert has weight 1 for any logits: the gradient is exactly zero, without rounding.
  const at::Tensor normalized =
      model.experts_per_token == 1 ? at::ones_like(values) : values / values.sum(1, /*keepdim=*/true);
  const at::Tensor weights =
      at::zeros_like(logits).scatter(1, chosen, model.router_scale * (model.router_normalize ? normalized : values));
  at::Tensor sum = at::zeros_like(tokens);
  for (std::int64_t e = 0; e < model.experts; ++e)
    sum = sum + network(tokens, "experts." + std::to_string(e) + ".", weights.slice(1, e, e + 1));
  if (model.architecture == "qwen2_moe")
    sum = sum + network(tokens, "shared_expert.", project(tokens, "shared_expert_gate").sigmoid());
  if (deepseek) sum = sum + network(tokens, "shared_experts.", {});
  if (router == nullptr) return sum.view_as(h);
  add_router_losses(model, logits, scores_of(logits.to(at::kDouble)), chosen, h.size(0), *router);
  router->loads[block + "gate.e_score_correction_bias"] = at::zeros_like(logits).scatter(1, chosen, 1.0).sum(0);
  return sum.view_as(h);
}

}  // namespace trireme::test
