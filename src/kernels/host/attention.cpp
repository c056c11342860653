// SPDX-License-Identifier: Apache-2.0
#include "trireme/kernels/attention.hpp"

#include <ATen/ops/empty.h>

#include "kernels/cuda.hpp"
#include "kernels/host/attention_head.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {
namespace {

void expect_shapes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
                   const at::Tensor& logsumexp, const AttentionShape& s) {
  const std::int64_t tokens = s.batch * s.seq_len, queries = s.batch * s.queries();
  const auto type = q.scalar_type();
  invariant(s.window >= 0, "attention: a window has at least one token");
  invariant(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: heads is not a multiple of kv_heads");
  expect_shape(q, {queries, s.heads * s.head_dim}, type, "attention: q does not fit the shape");
  expect_shape(k, {tokens, s.kv_heads * s.head_dim}, type, "attention: k does not fit the shape");
  expect_shape(v, {tokens, s.kv_heads * s.value_width()}, type, "attention: v does not fit the shape");
  expect_shape(out, {queries, s.heads * s.value_width()}, type, "attention: out does not fit the shape");
  expect_shape(logsumexp, {s.batch, s.heads, s.queries()}, at::kFloat, "attention: logsumexp does not fit the shape");
}

/// The beginnings of documents, or null.
const std::int32_t* beginnings(const at::Tensor& document_begin, const AttentionShape& s) {
  if (!document_begin.defined()) return nullptr;
  invariant(document_begin.is_cpu(), "attention: the borders of documents lie on the host");
  expect_shape(document_begin, {s.batch * s.queries()}, at::kInt, "attention: document_begin does not fit the shape");
  return document_begin.const_data_ptr<std::int32_t>();
}

/// Calls body(sequence, kv_head, workspace) for every key and value head, with `floats` of workspace for each worker.
template <class Body>
void for_each_kv_head(const AttentionShape& s, std::int64_t floats, const Body& body) {
  const std::int64_t heads = s.batch * s.kv_heads;
  const at::Tensor workspace = at::empty({worker_count(heads), floats}, at::kFloat);
  auto* data = workspace.mutable_data_ptr<float>();
  parallel_workers(heads, [&](std::int64_t worker, std::int64_t i) {
    body(i / s.kv_heads, i % s.kv_heads, data + worker * floats);
  });
}

}  // namespace

void causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                      const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& document_begin) {
  expect_shapes(q, k, v, out, logsumexp, shape);
  const std::int32_t* const begins = beginnings(document_begin, shape);
  if (q.is_cuda()) return cuda::causal_attention(q, k, v, shape, out, logsumexp, document_begin);
  with_type(q, [&]<class T>(T) {
    const ForwardArguments<T> arguments{.q = rows<const T>(q),
                                        .k = rows<const T>(k),
                                        .v = rows<const T>(v),
                                        .out = rows<T>(out),
                                        .logsumexp = logsumexp.mutable_data_ptr<float>(),
                                        .document_begin = begins};
    for_each_kv_head(shape, forward_workspace(shape),
                     [&](std::int64_t sequence, std::int64_t kv_head, float* workspace) {
                       forward_heads(arguments, shape, sequence, kv_head, workspace);
                     });
  });
}

Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionShape& shape,
                const at::Tensor& document_begin) {
  if (q.is_cuda()) {
    (void)beginnings(document_begin, shape);
    return cuda::attend(q, k, v, shape, document_begin);
  }
  Attended result{.out = at::empty({q.size(0), shape.heads * shape.value_width()}, q.options()),
                  .logsumexp = at::empty({shape.batch, shape.heads, shape.queries()}, q.options().dtype(at::kFloat))};
  causal_attention(q, k, v, shape, result.out, result.logsumexp, document_begin);
  return result;
}

void causal_attention_backward(const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const at::Tensor& out, const at::Tensor& logsumexp, const AttentionShape& shape,
                               const at::Tensor& d_q, const at::Tensor& d_k, const at::Tensor& d_v,
                               const at::Tensor& document_begin, const Rotated& rotated) {
  const std::int32_t* const begins = beginnings(document_begin, shape);
  invariant(!rotated.any() || shape.run == 0, "the positions of runs are not those of their rows");
  expect_shapes(q, k, v, out, logsumexp, shape);
  expect_shapes(d_q, d_k, d_v, d_out, logsumexp, shape);
  if (q.is_cuda())
    return cuda::causal_attention_backward(d_out, q, k, v, out, logsumexp, shape, d_q, d_k, d_v, document_begin,
                                           rotated);
  with_type(q, [&]<class T>(T) {
    const BackwardArguments<T> arguments{.d_out = rows<const T>(d_out),
                                         .q = rows<const T>(q),
                                         .k = rows<const T>(k),
                                         .v = rows<const T>(v),
                                         .out = rows<const T>(out),
                                         .logsumexp = logsumexp.const_data_ptr<float>(),
                                         .d_q = rows<T>(d_q),
                                         .d_k = rows<T>(d_k),
                                         .d_v = rows<T>(d_v),
                                         .document_begin = begins};
    for_each_kv_head(shape, backward_workspace(shape),
                     [&](std::int64_t sequence, std::int64_t kv_head, float* workspace) {
                       backward_heads(arguments, shape, sequence, kv_head, workspace);
                     });
  });
  if (!rotated.any()) return;
  rotate(d_q, rotated.queries, shape.seq_len, Rotation::inverse);
  rotate(d_k, rotated.keys, shape.seq_len, Rotation::inverse);
}

}  // namespace trireme::kernels
