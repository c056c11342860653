// SPDX-License-Identifier: Apache-2.0
// Attention of a context rank's two runs of queries, on a device against that of the host.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <optional>

#include "kernels/cuda.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::kernels::attention_runs_gpu_test {
namespace {

using test::relative_error;
using test::to_kernels;

class RunsOnDevice : public test::GpuTest {};

struct Problem {
  AttentionShape shape;
  at::Tensor q, kv, d_out, documents;
};

/// The runs of rank `rank` of `ranks`.
AttentionShape of_rank(AttentionShape s, std::int64_t rank, std::int64_t ranks) {
  s.run = s.seq_len / (2 * ranks);
  s.run_begin = {rank * s.run, (2 * ranks - 1 - rank) * s.run};
  return s;
}

/// Document begin of each query: a document every `length` tokens of a row, or one per row.
at::Tensor documents_of(const AttentionShape& s, std::int64_t length) {
  if (length == 0) return {};
  at::Tensor begins = at::empty({s.batch * s.queries()}, at::kInt);
  auto* to = begins.mutable_data_ptr<std::int32_t>();
  for (std::int64_t row = 0; row < s.batch; ++row)
    for (const std::int64_t first : s.run_begin)
      for (std::int64_t i = 0; i < s.run; ++i)
        *to++ = static_cast<std::int32_t>((first + i) / (length + row) * (length + row));
  return begins;
}

/// Output, log-sum-exp and gradients by q, k and v. library: none for the host's.
std::vector<at::Tensor> attend(const Problem& p, std::optional<AttentionLibrary> library) {
  const AttentionShape& s = p.shape;
  const auto place = [&](const at::Tensor& t) { return library ? to_kernels(t) : t.clone(); };
  const std::int64_t width = s.kv_heads * s.head_dim;
  const at::Tensor q = place(p.q), kv = place(p.kv), g = place(p.d_out), out = place(at::full_like(p.d_out, NAN)),
                   lse = place(at::full({s.batch, s.heads, s.queries()}, NAN)), d_q = place(at::full_like(p.q, NAN)),
                   d_kv = place(at::full_like(p.kv, NAN));
  const at::Tensor k = kv.slice(1, 0, width), v = kv.slice(1, width), d_k = d_kv.slice(1, 0, width),
                   d_v = d_kv.slice(1, width);
  if (library) {
    cuda::causal_attention(*library, q, k, v, s, out, lse, p.documents);
    cuda::causal_attention_backward(*library, g, q, k, v, out, lse, s, d_q, d_k, d_v, p.documents);
  } else {
    causal_attention(q, k, v, s, out, lse, p.documents);
    causal_attention_backward(g, q, k, v, out, lse, s, d_q, d_k, d_v, p.documents);
  }
  return {out.cpu(), lse.cpu(), d_q.cpu(), d_k.cpu(), d_v.cpu()};
}

void compare(AttentionLibrary library, const AttentionShape& whole, at::ScalarType type, double tolerance) {
  for (const std::int64_t rank : {0, 1})
    for (const std::int64_t length : {0, 5, 9}) {
      const AttentionShape s = of_rank(whole, rank, 2);
      const std::int64_t queries = s.batch * s.queries(), width = s.heads * s.head_dim;
      const Problem problem{
          .shape = s,
          .q = at::randn({queries, width}).to(type),
          .kv = at::randn({s.batch * s.seq_len, 2 * s.kv_heads * s.head_dim}).to(type),
          .d_out = at::randn({queries, width}).to(type),
          .documents = documents_of(s, length),
      };
      const auto device = attend(problem, library), host = attend(problem, std::nullopt);
      for (std::size_t i = 0; i < host.size(); ++i)
        EXPECT_LT(relative_error(device[i], host[i]), tolerance)
            << to_text(library) << ", rank " << rank << ", documents of " << length << ", tensor " << i;
    }
}

TEST_F(RunsOnDevice, FollowTheHost) {
  for (const auto& s : {AttentionShape{1, 4, 1, 1, 2}, {2, 24, 6, 2, 10}, {2, 40, 4, 2, 10, 0, 0.2, 1.5}}) {
    compare(AttentionLibrary::dense, s, at::kFloat, 1e-5);
    compare(AttentionLibrary::dense, s, at::kBFloat16, 1e-2);
  }
}

TEST_F(RunsOnDevice, OfFlashFollowTheHost) {
  if (!test::on_gpu()) GTEST_SKIP() << "libtorch has these kernels for GPUs only";
  for (const auto library : {AttentionLibrary::flash, AttentionLibrary::cudnn})  // which runs flash
    for (const auto& s : {AttentionShape{2, 128, 4, 2, 64}, {1, 200, 8, 8, 128}, {3, 76, 6, 2, 32}})
      compare(library, s, at::kBFloat16, 2e-2);
}

}  // namespace
}  // namespace trireme::kernels::attention_runs_gpu_test
