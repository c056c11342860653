// SPDX-License-Identifier: Apache-2.0
//
// Attention of one position against a cache, by libtorch's matrix products: for the host and for GPUs.
#include "trireme/kernels/cached_attention.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::kernels {
namespace {

/// [B*T, kv_heads * width] as [B, kv_heads, T, width].
at::Tensor by_kv_head(const at::Tensor& x, const AttentionShape& s) {
  return x.reshape({s.batch, s.seq_len, s.kv_heads, x.size(1) / s.kv_heads}).transpose(1, 2);
}

/// Whether each place holds a token before its row's document: [B, 1, 1, places].
at::Tensor hidden_places(const at::Tensor& document_begin, std::int64_t places, std::int64_t held, std::int64_t past,
                         at::Device device) {
  std::vector<std::int32_t> positions(static_cast<std::size_t>(held));
  for (std::int64_t place = 0; place < held; ++place)
    positions[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(past - (past - place) % places);
  const at::Tensor begin = document_begin.view({document_begin.size(0), 1, 1, 1});
  return at::tensor(positions, at::kInt).view({1, 1, 1, held}).lt(begin).to(device);
}

}  // namespace

void store_keys_and_values(const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape, std::int64_t past,
                           const KeyValueCache& cache) {
  const std::int64_t places = cache.keys.size(2);
  const std::int64_t kept = std::min(shape.seq_len, places), first = past + shape.seq_len - kept;
  for (const auto& [from, to] : {std::pair{k, cache.keys}, {v, cache.values}}) {
    const at::Tensor last = by_kv_head(from, shape).narrow(2, shape.seq_len - kept, kept);
    const std::int64_t place = first % places, before_wrap = std::min(kept, places - place);
    to.narrow(2, place, before_wrap).copy_(last.narrow(2, 0, before_wrap));
    if (before_wrap < kept) to.narrow(2, 0, kept - before_wrap).copy_(last.narrow(2, before_wrap, kept - before_wrap));
  }
}

void cached_attention(const at::Tensor& q, const KeyValueCache& cache, const AttentionShape& shape, std::int64_t past,
                      const at::Tensor& out, const at::Tensor& document_begin) {
  invariant(shape.seq_len == 1, "a cache is read for one position at a time");
  const std::int64_t places = cache.keys.size(2), held = std::min(past + 1, places);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const at::Tensor queries =
      q.reshape({shape.batch, shape.kv_heads, group, shape.head_dim}).to(at::kFloat).mul(shape.score_scale());
  at::Tensor scores =
      at::matmul(queries, cache.keys.narrow(2, 0, held).to(at::kFloat).transpose(2, 3));  // [B, kv_heads, group, held]
  if (shape.softcap > 0) scores.div_(shape.softcap).tanh_().mul_(shape.softcap);
  if (document_begin.defined())
    scores.masked_fill_(hidden_places(document_begin, places, held, past, scores.device()),
                        -std::numeric_limits<float>::infinity());
  const at::Tensor attended = at::matmul(at::softmax(scores, -1), cache.values.narrow(2, 0, held).to(at::kFloat));
  out.copy_(attended.reshape(out.sizes()));
}

}  // namespace trireme::kernels
