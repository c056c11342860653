// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>
#include <vector>

#include "kernels/cuda.hpp"
#include "kernels/cuda/attention_heads.hpp"
#include "kernels/cuda/attention_runs.hpp"
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/tensors.hpp"
#include "trireme/base/error.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels::cuda {
namespace {

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  ///< by q, k and v

double scale_of(const AttentionShape& s) { return s.score_scale(); }

/// Without dropout the random state is never read, but the kernels want a tensor of its kind.
at::Tensor no_random_state(const at::Tensor& q, at::IntArrayRef shape, at::ScalarType type) {
  return at::empty(shape, q.options().dtype(type));
}

/// libtorch 2.11 hands cuDNN's log-sum-exp out, and takes it back, as [B, heads, T, 1]; others as [B, heads, T].
std::atomic<std::int64_t> cudnn_lse_dims{4};

/// Flash attention with a window: libtorch's front to it has none, and takes [B, T, heads, head_dim]. The window counts
/// the keys before a query, not its own.
Attended attend_window(const at::Tensor& q4, const at::Tensor& k4, const at::Tensor& v4, const AttentionShape& s) {
  const auto all = at::_flash_attention_forward(q4.transpose(1, 2), k4.transpose(1, 2), v4.transpose(1, 2), {}, {},
                                                s.seq_len, s.seq_len, 0.0, true, false, scale_of(s), s.window - 1, 0);
  return {std::get<0>(all).transpose(1, 2), std::get<1>(all)};
}

Gradients attend_window_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& s) {
  const auto tokens = [&](const at::Tensor& x, std::int64_t n) { return by_head(x, s, n).transpose(1, 2); };
  auto [d_q, d_k, d_v] = at::_flash_attention_backward(
      tokens(d_out, s.heads), tokens(q, s.heads), tokens(k, s.kv_heads), tokens(v, s.kv_heads), tokens(out, s.heads),
      logsumexp, {}, {}, s.seq_len, s.seq_len, 0.0, true, no_random_state(q, {2}, at::kUInt64),
      no_random_state(q, {}, at::kUInt64), scale_of(s), s.window - 1, 0);
  return {d_q.transpose(1, 2), d_k.transpose(1, 2), d_v.transpose(1, 2)};
}

/// cuDNN has no windows.
AttentionLibrary for_window(AttentionLibrary library, const AttentionShape& s) {
  return library == AttentionLibrary::cudnn && s.window > 0 ? AttentionLibrary::flash : library;
}

/// The library to use for this call: dense where the chosen one cannot run.
AttentionLibrary library_for(const at::Tensor& q, const AttentionShape& s) {
  const bool fused = q.scalar_type() == at::kBFloat16 && s.head_dim % 8 == 0 && s.head_dim <= 256 && s.softcap == 0;
  return fused ? attention_library() : AttentionLibrary::dense;
}

/// Output [B*T, heads * head_dim] and log-sum-exp [B, heads, T] of a library other than dense, in its own memory.
Attended attended_by(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionShape& s) {
  const at::Tensor q4 = by_head(q, s, s.heads), k4 = by_head(k, s, s.kv_heads), v4 = by_head(v, s, s.kv_heads);
  const auto as_ours = [&](const at::Tensor& out, const at::Tensor& lse) {
    return Attended{by_token(out, s, s.heads), lse.reshape({s.batch, s.heads, s.seq_len})};
  };
  if (library == AttentionLibrary::cudnn) {
    const auto all =
        at::_scaled_dot_product_cudnn_attention(q4, k4, v4, std::nullopt, true, 0.0, true, false, scale_of(s));
    cudnn_lse_dims = std::get<1>(all).dim();
    return as_ours(std::get<0>(all), std::get<1>(all));
  }
  invariant(library == AttentionLibrary::flash, "attention: unknown library");
  if (s.window > 0) {
    const Attended all = attend_window(q4, k4, v4, s);
    return as_ours(all.out, all.logsumexp);
  }
  const auto all = at::_scaled_dot_product_flash_attention(q4, k4, v4, 0.0, true, false, scale_of(s));
  return as_ours(std::get<0>(all), std::get<1>(all));
}

void attend(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
            const AttentionShape& s, const at::Tensor& out, const at::Tensor& logsumexp) {
  if (library == AttentionLibrary::dense) return dense_attention(q, k, v, s, out, logsumexp);
  const Attended all = attended_by(for_window(library, s), q, k, v, s);
  out.copy_(all.out);
  logsumexp.copy_(all.logsumexp);
}

/// Gradients by a library other than dense, in its own memory.
Gradients gradients_by(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const at::Tensor& out, const at::Tensor& logsumexp,
                       const AttentionShape& s) {
  const at::Tensor d_out4 = by_head(d_out, s, s.heads), q4 = by_head(q, s, s.heads), k4 = by_head(k, s, s.kv_heads),
                   v4 = by_head(v, s, s.kv_heads), out4 = by_head(out, s, s.heads);
  if (library == AttentionLibrary::cudnn)
    return at::_scaled_dot_product_cudnn_attention_backward(
        d_out4, q4, k4, v4, out4, cudnn_lse_dims == 4 ? logsumexp.unsqueeze(-1) : logsumexp,
        no_random_state(q, {}, at::kLong), no_random_state(q, {}, at::kLong), {}, {}, {}, s.seq_len, s.seq_len, 0.0,
        true, scale_of(s));
  invariant(library == AttentionLibrary::flash, "attention: unknown library");
  if (s.window > 0) return attend_window_backward(d_out, q, k, v, out, logsumexp, s);
  return at::_scaled_dot_product_flash_attention_backward(d_out4, q4, k4, v4, out4, logsumexp, {}, {}, s.seq_len,
                                                          s.seq_len, 0.0, true, no_random_state(q, {2}, at::kUInt64),
                                                          no_random_state(q, {}, at::kUInt64), scale_of(s));
}

void rotate_back(const Rotated& rotated, const AttentionShape& s, const at::Tensor& d_q, const at::Tensor& d_k) {
  if (!rotated.any()) return;
  cuda::rotate(d_q, rotated.queries, s.seq_len, Rotation::inverse);
  cuda::rotate(d_k, rotated.keys, s.seq_len, Rotation::inverse);
}

void attend_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                     const at::Tensor& v, const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& s,
                     const Rotated& rotated, const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v) {
  if (library == AttentionLibrary::dense) {
    dense_attention_backward(d_out, q, k, v, out, logsumexp, s, d_q, d_k, d_v);
    return rotate_back(rotated, s, d_q, d_k);
  }
  const auto [by_q, by_k, by_v] = gradients_by(for_window(library, s), d_out, q, k, v, out, logsumexp, s);
  put_gradients({by_q, by_k, by_v}, s, rotated, {d_q, d_k, d_v});
}

/// One document, a separate sequence: its range of tokens, in the batch and in its row.
struct Document {
  std::int64_t row, begin, end;
  std::int64_t seq_len;  ///< of the row

  [[nodiscard]] AttentionShape shape(AttentionShape of_rows) const {
    of_rows.batch = 1;
    of_rows.seq_len = end - begin;
    if (of_rows.window >= of_rows.seq_len) of_rows.window = 0;  // it hides nothing
    return of_rows;
  }
  [[nodiscard]] at::Tensor tokens(const at::Tensor& x) const {
    return x.slice(0, row * seq_len + begin, row * seq_len + end);
  }
  [[nodiscard]] at::Tensor logsumexp(const at::Tensor& all) const {
    return all.slice(0, row, row + 1).slice(2, begin, end);
  }
};

std::vector<Document> documents(const at::Tensor& document_begin, const AttentionShape& s) {
  const auto* const begins = document_begin.const_data_ptr<std::int32_t>();
  std::vector<Document> found;
  for (std::int64_t row = 0; row < s.batch; ++row)
    for (std::int64_t t = 0; t < s.seq_len; ++t) {
      const std::int64_t begin = begins[row * s.seq_len + t];
      if (t == begin) found.push_back({row, begin, t, s.seq_len});
      found.back().end = t + 1;
    }
  return found;
}

/// cuDNN would make a plan for every length of a document.
AttentionLibrary for_any_length(AttentionLibrary library) {
  return library == AttentionLibrary::cudnn ? AttentionLibrary::flash : library;
}

}  // namespace

void put_gradients(const HeadTensors& from, const AttentionShape& s, const Rotated& rotated, const HeadTensors& to) {
  with_type(to.q, [&]<class T>(T) {
    std::array<at::Tensor, 3> kept;  // until the launch
    const auto heads = [&](std::size_t i, const at::Tensor& source, const at::Tensor& target, const RopeTable& table) {
      kept.at(i) = source.stride(3) == 1 ? source : source.contiguous();
      const auto stride = [&](std::int64_t d) { return kept.at(i).size(d) > 1 ? kept.at(i).stride(d) : 0; };
      const bool turned = table.cos.defined();
      invariant(!turned || table.begin == 0, "gradients are rotated back from the first element of a head on");
      return HeadGradients<T>{.from = static_cast<const T*>(kept.at(i).const_data_ptr()),
                              .sequence_stride = stride(0),
                              .head_stride = stride(1),
                              .token_stride = stride(2),
                              .to = matrix<T>(target),
                              .cos = turned ? data<const float>(table.cos) : nullptr,
                              .sin = turned ? data<const float>(table.sin) : nullptr,
                              .half = turned ? table.cos.size(1) : 0};
    };
    place_gradients(PlacedGradients<T>{.q = heads(0, from.q, to.q, rotated.queries),
                                       .k = heads(1, from.k, to.k, rotated.keys),
                                       .v = heads(2, from.v, to.v, {}),
                                       .head_dim = s.head_dim,
                                       .seq_len = s.seq_len,
                                       .adjacent = rotated.keys.adjacent_pairs});
  });
}

void causal_attention(AttentionLibrary library, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const AttentionShape& shape, const at::Tensor& out, const at::Tensor& logsumexp,
                      const at::Tensor& document_begin) {
  if (shape.run > 0) return attention_of_runs(library, q, k, v, shape, out, logsumexp, document_begin);
  if (!document_begin.defined()) return attend(library, q, k, v, shape, out, logsumexp);
  for (const Document& d : documents(document_begin, shape))
    attend(for_any_length(library), d.tokens(q), d.tokens(k), d.tokens(v), d.shape(shape), d.tokens(out),
           d.logsumexp(logsumexp));
}

void causal_attention_backward(AttentionLibrary library, const at::Tensor& d_out, const at::Tensor& q,
                               const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                               const at::Tensor& logsumexp, const AttentionShape& shape, const at::Tensor& d_q,
                               const at::Tensor& d_k, const at::Tensor& d_v, const at::Tensor& document_begin,
                               const Rotated& rotated) {
  if (shape.run > 0)
    return attention_of_runs_backward(library, d_out, q, k, v, out, logsumexp, shape, d_q, d_k, d_v, document_begin);
  if (!document_begin.defined())
    return attend_backward(library, d_out, q, k, v, out, logsumexp, shape, rotated, d_q, d_k, d_v);
  for (const Document& d : documents(document_begin, shape))
    attend_backward(for_any_length(library), d.tokens(d_out), d.tokens(q), d.tokens(k), d.tokens(v), d.tokens(out),
                    d.logsumexp(logsumexp).contiguous(), d.shape(shape), {}, d.tokens(d_q), d.tokens(d_k),
                    d.tokens(d_v));
  rotate_back(rotated, shape, d_q, d_k);
}

namespace {

/// Operands for libraries that take keys and values of one width: zeros behind the elements of each narrower head add
/// nothing to scores and outputs.
struct OneWidth {
  AttentionShape shape;  ///< of the padded heads
  AttentionShape of;     ///< as given

  explicit OneWidth(const AttentionShape& given) : shape(given), of(given) {
    shape.scale = given.score_scale();
    shape.head_dim = std::max(given.head_dim, given.value_width());
    shape.value_dim = 0;
  }
  /// [N, heads * width] as [N, heads * shape.head_dim].
  [[nodiscard]] at::Tensor padded(const at::Tensor& x, std::int64_t heads, std::int64_t width) const {
    if (width == shape.head_dim) return x;
    const at::Tensor wide = at::zeros({x.size(0), heads, shape.head_dim}, x.options());
    wide.slice(2, 0, width).copy_(x.unflatten(1, {heads, width}));
    return wide.view({x.size(0), heads * shape.head_dim});
  }
  [[nodiscard]] at::Tensor padded_q(const at::Tensor& q) const { return padded(q, of.heads, of.head_dim); }
  [[nodiscard]] at::Tensor padded_k(const at::Tensor& k) const { return padded(k, of.kv_heads, of.head_dim); }
  [[nodiscard]] at::Tensor padded_v(const at::Tensor& v) const { return padded(v, of.kv_heads, of.value_width()); }
  [[nodiscard]] at::Tensor padded_out(const at::Tensor& out) const { return padded(out, of.heads, of.value_width()); }
  /// The elements of `wide` that are not padding, into x.
  void unpad(const at::Tensor& wide, std::int64_t heads, std::int64_t width, const at::Tensor& x) const {
    x.unflatten(1, {heads, width}).copy_(wide.unflatten(1, {heads, shape.head_dim}).slice(2, 0, width));
  }
};

bool has_one_width(const AttentionShape& s) { return s.value_width() == s.head_dim; }

}  // namespace

void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& document_begin) {
  if (has_one_width(shape))
    return causal_attention(library_for(q, shape), q, k, v, shape, out, logsumexp, document_begin);
  const OneWidth wide(shape);
  const at::Tensor wide_out = at::empty({q.size(0), shape.heads * wide.shape.head_dim}, q.options());
  causal_attention(library_for(q, wide.shape), wide.padded_q(q), wide.padded_k(k), wide.padded_v(v), wide.shape,
                   wide_out, logsumexp, document_begin);
  wide.unpad(wide_out, shape.heads, shape.value_width(), out);
}

Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                const at::Tensor& document_begin) {
  if (!has_one_width(shape)) {
    Attended result{.out = at::empty({q.size(0), shape.heads * shape.value_width()}, q.options()),
                    .logsumexp = at::empty({shape.batch, shape.heads, shape.queries()}, q.options().dtype(at::kFloat))};
    cuda::causal_attention(q, k, v, shape, result.out, result.logsumexp, document_begin);
    return result;
  }
  const AttentionLibrary library = library_for(q, shape);
  if (library != AttentionLibrary::dense && shape.run == 0 && !document_begin.defined())
    return attended_by(for_window(library, shape), q, k, v, shape);
  Attended result{.out = at::empty(q.sizes(), q.options()),
                  .logsumexp = at::empty({shape.batch, shape.heads, shape.queries()}, q.options().dtype(at::kFloat))};
  causal_attention(library, q, k, v, shape, result.out, result.logsumexp, document_begin);
  return result;
}

void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v,
                               const at::Tensor& document_begin, const Rotated& rotated) {
  if (has_one_width(shape))
    return causal_attention_backward(library_for(q, shape), d_out, q, k, v, out, logsumexp, shape, d_q, d_k, d_v,
                                     document_begin, rotated);
  const OneWidth wide(shape);
  const at::Tensor wide_q = wide.padded_q(q), wide_k = wide.padded_k(k), wide_v = wide.padded_v(v);
  const at::Tensor by_q = at::empty_like(wide_q, at::MemoryFormat::Contiguous),
                   by_k = at::empty_like(wide_k, at::MemoryFormat::Contiguous),
                   by_v = at::empty_like(wide_v, at::MemoryFormat::Contiguous);
  causal_attention_backward(library_for(q, wide.shape), wide.padded_out(d_out), wide_q, wide_k, wide_v,
                            wide.padded_out(out), logsumexp, wide.shape, by_q, by_k, by_v, document_begin, {});
  wide.unpad(by_q, shape.heads, shape.head_dim, d_q);
  wide.unpad(by_k, shape.kv_heads, shape.head_dim, d_k);
  wide.unpad(by_v, shape.kv_heads, shape.value_width(), d_v);
  rotate_back(rotated, shape, d_q, d_k);
}

}  // namespace trireme::kernels::cuda
