// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <cmath>

#include "kernels/cuda/attention_heads.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/cuda.hpp"

namespace trireme::kernels::cuda {
namespace {

double scale_of(const AttentionShape& s) { return 1.0 / std::sqrt(static_cast<double>(s.head_dim)); }

/// Without dropout the random state is never read, but the kernels want a tensor of its kind.
at::Tensor no_random_state(const at::Tensor& q, at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, q.options().dtype(type));
}

/// libtorch 2.11 hands cuDNN's log-sum-exp out, and takes it back, as [B, heads, T, 1]; others as [B, heads, T].
std::atomic<std::int64_t> cudnn_lse_dims{4};

void put_gradients(const std::tuple<at::Tensor, at::Tensor, at::Tensor>& from, const AttentionShape& s,
                   const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  by_head(d_q, s, s.heads).copy_(std::get<0>(from));
  by_head(d_k, s, s.kv_heads).copy_(std::get<1>(from));
  by_head(d_v, s, s.kv_heads).copy_(std::get<2>(from));
}

/// The library to use for this call: dense where the chosen one cannot run.
AttentionLibrary library_for(const at::Tensor& q, const AttentionShape& s) {
  const bool fused = q.scalar_type() == at::kBFloat16 && s.head_dim % 8 == 0 && s.head_dim <= 256;
  return fused ? attention_library() : AttentionLibrary::dense;
}

}  // namespace

void causal_attention(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionShape& s, const at::Tensor& out, const at::Tensor& logsumexp) {
  const at::Tensor q4 = by_head(q, s, s.heads), k4 = by_head(k, s, s.kv_heads), v4 = by_head(v, s, s.kv_heads);
  const auto put = [&](const at::Tensor& result, const at::Tensor& lse) {
    by_head(out, s, s.heads).copy_(result);
    logsumexp.copy_(lse.reshape(logsumexp.sizes()));
  };
  switch (library) {
    case AttentionLibrary::dense: return dense_attention(q, k, v, s, out, logsumexp);
    case AttentionLibrary::flash: {
      const auto all = at::_scaled_dot_product_flash_attention(q4, k4, v4, 0.0, true, false, scale_of(s));
      return put(std::get<0>(all), std::get<1>(all));
    }
    case AttentionLibrary::cudnn: {
      const auto all =
          at::_scaled_dot_product_cudnn_attention(q4, k4, v4, std::nullopt, true, 0.0, true, false, scale_of(s));
      cudnn_lse_dims = std::get<1>(all).dim();
      return put(std::get<0>(all), std::get<1>(all));
    }
  }
  throw BugError("attention: unknown library");
}

void causal_attention_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                               const at::Tensor& logsumexp, const AttentionShape& s, const at::Tensor& d_q,
                               const at::Tensor& d_k, const at::Tensor& d_v) {
  const auto heads = [&](const at::Tensor& x, std::int64_t n) { return by_head(x, s, n); };
  switch (library) {
    case AttentionLibrary::dense: return dense_attention_backward(d_out, q, k, v, out, logsumexp, s, d_q, d_k, d_v);
    case AttentionLibrary::flash:
      return put_gradients(at::_scaled_dot_product_flash_attention_backward(
                               heads(d_out, s.heads), heads(q, s.heads), heads(k, s.kv_heads), heads(v, s.kv_heads),
                               heads(out, s.heads), logsumexp, {}, {}, s.seq_len, s.seq_len, 0.0, true,
                               no_random_state(q, {2}, at::kUInt64), no_random_state(q, {}, at::kUInt64), scale_of(s)),
                           s, d_q, d_k, d_v);
    case AttentionLibrary::cudnn:
      return put_gradients(
          at::_scaled_dot_product_cudnn_attention_backward(
              heads(d_out, s.heads), heads(q, s.heads), heads(k, s.kv_heads), heads(v, s.kv_heads), heads(out, s.heads),
              cudnn_lse_dims == 4 ? logsumexp.unsqueeze(-1) : logsumexp, no_random_state(q, {}, at::kLong),
              no_random_state(q, {}, at::kLong), {}, {}, {}, s.seq_len, s.seq_len, 0.0, true, scale_of(s)),
          s, d_q, d_k, d_v);
  }
  throw BugError("attention: unknown library");
}

void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp) {
  causal_attention(library_for(q, shape), q, k, v, shape, out, logsumexp);
}

void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  causal_attention_backward(library_for(q, shape), d_out, q, k, v, out, logsumexp, shape, d_q, d_k, d_v);
}

}  // namespace trireme::kernels::cuda
