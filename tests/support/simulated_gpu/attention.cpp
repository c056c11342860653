// SPDX-License-Identifier: Apache-2.0
//
// The attention that libtorch has for GPUs only, on the simulated one: flash with windows and fewer queries than keys,
// cuDNN with neither. Plain products in fp32; results are laid out as the libraries' are, token by token.
#include "attention.hpp"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <thread>
#include <tuple>

#include "trireme/base/error.hpp"

namespace trireme::test::gpu {

AttentionLibraryOnTrial flash_on_trial, cudnn_on_trial;

namespace {

/// [B, heads, T, head_dim], all in fp32; keys and values once for each query head.
struct Heads {
  at::Tensor q, k, v;
  double scale;
  std::int64_t window;  ///< keys before a query's own that it sees; -1: all

  Heads(const at::Tensor& of_q, const at::Tensor& of_k, const at::Tensor& of_v, std::optional<double> given,
        std::int64_t before)
      : q(of_q.to(at::kFloat)),
        k(repeated(of_k, of_q.size(1))),
        v(repeated(of_v, of_q.size(1))),
        scale(given.value_or(1 / std::sqrt(static_cast<double>(of_q.size(3))))),
        window(before) {
    invariant(of_q.scalar_type() == at::kBFloat16 && of_q.size(3) % 8 == 0 && of_q.size(3) <= 256,
              "the libraries take heads of a multiple of 8 in bf16");
    for (const at::Tensor& t : {of_q, of_k, of_v}) invariant(t.stride(3) == 1, "the libraries take whole heads");
  }
  static at::Tensor repeated(const at::Tensor& x, std::int64_t heads) {
    return x.to(at::kFloat).repeat_interleave(heads / x.size(1), 1);
  }
  /// Masked at the bottom right, as flash does.
  [[nodiscard]] at::Tensor scores() const {
    const std::int64_t queries = q.size(2), keys = k.size(2), last = keys - queries;
    at::Tensor seen = at::ones({queries, keys}, q.options().dtype(at::kBool)).tril(last);
    if (window >= 0) seen = seen.triu(last - window);
    return at::matmul(q, k.transpose(2, 3))
        .mul(scale)
        .masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
};

at::Tensor token_by_token(const at::Tensor& x) {
  return x.to(at::kBFloat16).transpose(1, 2).contiguous().transpose(1, 2);
}

std::tuple<at::Tensor, at::Tensor> attend(const Heads& heads, AttentionLibraryOnTrial& library) {
  ++library.calls;
  if (library.refuses) throw std::runtime_error("this library cannot run here");
  if (library.delay.count() > 0) std::this_thread::sleep_for(library.delay);
  const at::Tensor scores = heads.scores(), lse = scores.logsumexp(-1);
  at::Tensor out = token_by_token(at::matmul((scores - lse.unsqueeze(-1)).exp(), heads.v));
  if (library.wrong_from && heads.q.size(2) >= *library.wrong_from) out.mul_(1.1);
  return {out, lse};
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Gradients backward(const Heads& heads, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                   std::int64_t kv_heads) {
  const at::Tensor g = d_out.to(at::kFloat), p = (heads.scores() - lse.unsqueeze(-1)).exp();
  const at::Tensor d_p = at::matmul(g, heads.v.transpose(2, 3));
  const at::Tensor d_s = p * (d_p - (g * out.to(at::kFloat)).sum(-1, true)) * heads.scale;
  const auto summed = [&](const at::Tensor& x) {
    const std::vector<std::int64_t> apart{x.size(0), kv_heads, x.size(1) / kv_heads, x.size(2), x.size(3)};
    return token_by_token(x.reshape(apart).sum(2));
  };
  return {token_by_token(at::matmul(d_s, heads.k)), summed(at::matmul(d_s.transpose(2, 3), heads.q)),
          summed(at::matmul(p.transpose(2, 3), g))};
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor,
                           at::Tensor, at::Tensor>;

Forward flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double dropout, bool causal, bool,
              std::optional<double> scale) {
  invariant(causal && dropout == 0, "attention is causal");
  const auto [out, lse] = attend(Heads(q, k, v, scale, -1), flash_on_trial);
  return {out, lse, {}, {}, q.size(2), k.size(2), {}, {}, {}};
}

Gradients flash_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& out, const at::Tensor& lse, const at::Tensor&, const at::Tensor&,
                         c10::SymInt, c10::SymInt, double, bool, const at::Tensor&, const at::Tensor&,
                         std::optional<double> scale) {
  return backward(Heads(q, k, v, scale, -1), d_out, out, lse, k.size(1));
}

Forward cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>&,
              bool with_lse, double dropout, bool causal, bool, std::optional<double> scale) {
  invariant(causal && dropout == 0 && with_lse && q.size(2) == k.size(2), "attention is causal, of whole sequences");
  const auto [out, lse] = attend(Heads(q, k, v, scale, -1), cudnn_on_trial);
  return {out, lse.unsqueeze(-1), {}, {}, q.size(2), k.size(2), {}, {}, {}};
}

Gradients cudnn_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const at::Tensor& out, const at::Tensor& lse, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double,
                         bool, std::optional<double> scale) {
  invariant(lse.dim() == 4, "cuDNN takes its log-sum-exp back as it gave it");
  return backward(Heads(q, k, v, scale, -1), d_out, out, lse.squeeze(-1), k.size(1));
}

std::int64_t before(const std::optional<c10::SymInt>& left) { return left ? left->expect_int() : -1; }

/// [B, T, heads, head_dim].
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&, c10::SymInt, c10::SymInt, double, bool causal, bool, std::optional<double> scale,
    std::optional<c10::SymInt> left, std::optional<c10::SymInt>, const std::optional<at::Tensor>&,
    const std::optional<at::Tensor>&) {
  invariant(causal, "attention is causal");
  const auto [out, lse] =
      attend(Heads(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale, before(left)), flash_on_trial);
  return {out.transpose(1, 2), lse, {}, {}, {}};
}

Gradients flash_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, const at::Tensor&,
                                   const at::Tensor&, c10::SymInt, c10::SymInt, double, bool, const at::Tensor&,
                                   const at::Tensor&, std::optional<double> scale, std::optional<c10::SymInt> left,
                                   std::optional<c10::SymInt>) {
  const auto [d_q, d_k, d_v] =
      backward(Heads(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale, before(left)),
               d_out.transpose(1, 2), out.transpose(1, 2), lse, k.size(2));
  return {d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2)};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_scaled_dot_product_flash_attention", &flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &flash_backward);
  library.impl("_scaled_dot_product_cudnn_attention", &cudnn);
  library.impl("_scaled_dot_product_cudnn_attention_backward", &cudnn_backward);
  library.impl("_flash_attention_forward", &flash_forward);
  library.impl("_flash_attention_backward", &flash_attention_backward);
}

}  // namespace
}  // namespace trireme::test::gpu
