// SPDX-License-Identifier: Apache-2.0
// Matrix products and attention on a device against those of the host.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>

#include <limits>

#include "kernels/cuda.hpp"
#include "kernels/cuda/attention_heads.hpp"
#include "kernels/cuda/blas.hpp"
#include "support/gpu.hpp"
#include "support/tensors.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/gemm.hpp"

namespace trireme::kernels {
namespace {

using test::relative_error;
using test::to_kernels;

class ProductsOnDevice : public test::GpuTest {};

TEST_F(ProductsOnDevice, LinearFollowsFp64) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    if (type == at::kBFloat16 && !test::on_gpu()) continue;  // products of two types exist on CUDA only
    const double tolerance = type == at::kFloat ? 2e-6 : 5e-3;
    for (const auto& [tokens, out, in] :
         {std::array<std::int64_t, 3>{1, 1, 1}, {7, 3, 5}, {33, 70, 129}, {64, 256, 128}}) {
      const at::Tensor x = at::randn({tokens, 2 * in}).to(type), w = at::randn({out, in}).to(type),
                       d_y = at::randn({tokens, out + 8}).to(type), residual = at::randn({tokens, out}).to(type);
      const at::Tensor x64 = x.slice(1, 0, in).to(at::kDouble), w64 = w.to(at::kDouble),
                       d_y64 = d_y.slice(1, 8).to(at::kDouble);
      const at::Tensor xs = to_kernels(x).slice(1, 0, in), ws = to_kernels(w), gs = to_kernels(d_y).slice(1, 8);
      EXPECT_LT(relative_error(cuda::linear(xs, ws).cpu(), x64.mm(w64.t())), tolerance);
      EXPECT_LT(relative_error(cuda::linear_add(xs, ws, to_kernels(residual)).cpu(),
                               residual.to(at::kDouble) + x64.mm(w64.t())),
                tolerance);
      EXPECT_LT(relative_error(cuda::linear_backward_input(gs, ws).cpu(), d_y64.mm(w64)), tolerance);
      for (const bool accumulate : {false, true}) {
        const at::Tensor grad =
            to_kernels(at::full({out, in}, accumulate ? 2.0 : std::numeric_limits<double>::quiet_NaN(), at::kFloat));
        cuda::linear_backward_weight(gs, xs, {.tensor = grad, .accumulate = accumulate});
        // Summed in fp32: nothing is rounded to bf16 on the way.
        EXPECT_LT(relative_error(grad.cpu(), d_y64.t().mm(x64) + (accumulate ? 2.0 : 0.0)), 5e-6);
      }
    }
  }
}

/// Output, log-sum-exp and gradients by q, k and v. library: none for the host's.
std::vector<at::Tensor> attend(const AttentionShape& s, const at::Tensor& qkv, const at::Tensor& d_out,
                               std::optional<AttentionLibrary> library, const at::Tensor& documents = {}) {
  const auto place = [&](const at::Tensor& t) { return library ? to_kernels(t) : t.clone(); };
  const at::Tensor all = place(qkv), d_all = place(at::full_like(qkv, NAN)), g = place(d_out),
                   out = place(at::full_like(d_out, NAN)), lse = place(at::full({s.batch, s.heads, s.seq_len}, NAN));
  const std::int64_t q_end = s.heads * s.head_dim, k_end = q_end + s.kv_heads * s.head_dim;
  const auto q = [&](const at::Tensor& t) { return t.slice(1, 0, q_end); };
  const auto k = [&](const at::Tensor& t) { return t.slice(1, q_end, k_end); };
  const auto v = [&](const at::Tensor& t) { return t.slice(1, k_end); };
  if (library) {
    cuda::causal_attention(*library, q(all), k(all), v(all), s, out, lse, documents);
    cuda::causal_attention_backward(*library, g, q(all), k(all), v(all), out, lse, s, q(d_all), k(d_all), v(d_all),
                                    documents);
  } else {
    causal_attention(q(all), k(all), v(all), s, out, lse, documents);
    causal_attention_backward(g, q(all), k(all), v(all), out, lse, s, q(d_all), k(d_all), v(d_all), documents);
  }
  return {out.cpu(), lse.cpu(), q(d_all).cpu(), k(d_all).cpu(), v(d_all).cpu()};
}

void compare_attention(AttentionLibrary library, const AttentionShape& s, at::ScalarType type, double tolerance,
                       const at::Tensor& documents = {}) {
  const std::int64_t tokens = s.batch * s.seq_len;
  const at::Tensor qkv = at::randn({tokens, (s.heads + 2 * s.kv_heads) * s.head_dim}).to(type),
                   d_out = at::randn({tokens, s.heads * s.head_dim}).to(type);
  const auto device = attend(s, qkv, d_out, library, documents), host = attend(s, qkv, d_out, std::nullopt, documents);
  for (std::size_t i = 0; i < host.size(); ++i)
    EXPECT_LT(relative_error(device[i], host[i]), tolerance) << to_text(library) << ", tensor " << i;
}

TEST_F(ProductsOnDevice, ABf16ShapeIsMeasuredOnceAndSummedWhereItLies) {
  const at::Tensor x = to_kernels(at::randn({48, 40}).to(at::kBFloat16)), w = at::randn({56, 40}).to(at::kBFloat16),
                   w_there = to_kernels(w), wide = to_kernels(at::randn({48, 64}).to(at::kBFloat16)),
                   residual = wide.slice(1, 8);
  const int before = cuda::measured_products().shapes;
  at::Tensor first;
  for (int call = 0; call < 3; ++call) {
    const at::Tensor y = cuda::linear_add(x, w_there, residual);
    EXPECT_EQ(cuda::measured_products().shapes, before + 1);
    EXPECT_LT(relative_error(y.cpu(), linear_add(x.cpu(), w, residual.cpu())), 1e-2);
    if (call == 0) first = y;
    EXPECT_TRUE(test::same_bits(y.cpu(), first.cpu()));
  }
  // An update in place is not measured: that would add it several times.
  const at::Tensor d_y = to_kernels(at::randn({48, 24}).to(at::kBFloat16)), here = at::full({24, 40}, 2.0, at::kFloat),
                   there = to_kernels(here);
  for (int call = 0; call < 2; ++call) {
    cuda::linear_backward_weight(d_y, x, {.tensor = there, .accumulate = true});
    linear_backward_weight(d_y.cpu(), x.cpu(), {.tensor = here, .accumulate = true});
  }
  EXPECT_EQ(cuda::measured_products().shapes, before + 1);
  EXPECT_LT(relative_error(there.cpu(), here), 1e-2);
  cuda::linear_backward_weight(d_y, x, {.tensor = there, .accumulate = false});
  EXPECT_EQ(cuda::measured_products().shapes, before + 2);
}

/// The gradient by a weight of rows of d_y and x; checked.
at::Tensor gradient_of(const at::Tensor& d_y, const at::Tensor& x) {
  const at::Tensor grad =
      to_kernels(at::full({d_y.size(1), x.size(1)}, std::numeric_limits<double>::quiet_NaN(), at::kFloat));
  cuda::linear_backward_weight(d_y, x, {.tensor = grad, .accumulate = false});
  EXPECT_LT(relative_error(grad.cpu(), d_y.cpu().to(at::kDouble).t().mm(x.cpu().to(at::kDouble))), 5e-6)
      << d_y.size(0) << " rows";
  return grad.cpu();
}

/// Rows of experts differ from step to step: what is kept and measured for them must not grow with the steps.
TEST_F(ProductsOnDevice, OfManySizesHaveFewAlgorithms) {
  const at::Tensor x = to_kernels(at::randn({1024, 96}).to(at::kBFloat16)),
                   d_y = to_kernels(at::randn({1024, 160}).to(at::kBFloat16));
  const int before = cuda::measured_products().shapes;
  for (std::int64_t rows = 1; rows <= 512; rows += rows % 64 == 0 ? 1 : 7) {
    const std::int64_t first = rows % 5, column = rows % 2 * 8;  // now and then aligned to 16 bytes only
    (void)gradient_of(d_y.slice(0, first, first + rows).slice(1, column, column + 88),
                      x.slice(0, first, first + rows).slice(1, column, column + 72));
  }
  EXPECT_LE(cuda::measured_products().shapes, before + 4 + 10) << "four sizes, then one for each power of two";
  // With deterministic algorithms the result does not depend on the shapes that were multiplied before.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const at::Tensor d_ys = d_y.slice(0, 0, 301).slice(1, 0, 88), xs = x.slice(0, 0, 301).slice(1, 0, 72);
  const at::Tensor once = gradient_of(d_ys, xs);
  EXPECT_TRUE(test::same_bits(once, gradient_of(d_ys, xs)));
  if (!test::on_gpu()) {  // real cuBLAS may propose another one for other strides
    EXPECT_TRUE(test::same_bits(once, gradient_of(d_ys.contiguous(), xs.contiguous())));
  }
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST_F(ProductsOnDevice, DenseAttentionFollowsTheHost) {
  for (const auto& s : {AttentionShape{1, 2, 1, 1, 2},
                        {2, 13, 6, 2, 10},
                        {1, 130, 4, 4, 16},
                        {2, 40, 4, 2, 10, 0, 0.2, 1.5},
                        {2, 13, 6, 2, 10, 2},  // with 1 the gradients of queries and keys are 0
                        {1, 150, 4, 2, 16, 7},
                        {2, 200, 2, 1, 6, 130},
                        {2, 40, 4, 2, 10, 5, 0.2, 1.5}}) {
    compare_attention(AttentionLibrary::dense, s, at::kFloat, 1e-5);
    compare_attention(AttentionLibrary::dense, s, at::kBFloat16, 1e-2);
  }
}

TEST_F(ProductsOnDevice, WhatALibraryWroteTokenByTokenIsNotCopied) {
  const AttentionShape s{2, 5, 3, 1, 4};
  const at::Tensor tokens = to_kernels(at::randn({2, 5, 3, 4})), same = cuda::by_token(tokens.transpose(1, 2), s, 3);
  EXPECT_EQ(same.data_ptr(), tokens.data_ptr());
  const at::Tensor apart = cuda::by_token(tokens.transpose(1, 2).contiguous(), s, 3);
  EXPECT_TRUE(test::same_bits(apart.cpu(), tokens.cpu().view({10, 12})));
}

/// Documents of several lengths, a row's first and last token alone among them.
at::Tensor documents_of(const AttentionShape& s) {
  const at::Tensor begins = at::empty({s.batch * s.seq_len}, at::kInt);
  auto* const out = begins.mutable_data_ptr<std::int32_t>();
  for (std::int64_t row = 0; row < s.batch; ++row) {
    std::int32_t begin = 0;
    for (std::int64_t t = 0; t < s.seq_len; ++t) {
      if (t == 1 || t == s.seq_len - 1 || t % (7 + 10 * row) == 3) begin = static_cast<std::int32_t>(t);
      out[row * s.seq_len + t] = begin;
    }
  }
  return begins;
}

TEST_F(ProductsOnDevice, AttentionInNewTensorsIsTheSame) {
  for (const auto& s : {AttentionShape{2, 13, 6, 2, 10}, {2, 13, 6, 2, 10, 2}}) {
    const at::Tensor q = to_kernels(at::randn({26, 60})), kv = to_kernels(at::randn({26, 40})), k = kv.slice(1, 0, 20),
                     v = kv.slice(1, 20), out = to_kernels(at::full({26, 60}, NAN)),
                     lse = to_kernels(at::full({2, 6, 13}, NAN));
    for (const at::Tensor& documents : {at::Tensor(), documents_of(s)}) {
      cuda::causal_attention(q, k, v, s, out, lse, documents);
      const Attended attended = cuda::attend(q, k, v, s, documents);
      EXPECT_TRUE(test::same_bits(attended.out.cpu(), out.cpu()));
      EXPECT_TRUE(test::same_bits(attended.logsumexp.cpu(), lse.cpu()));
    }
  }
}

TEST_F(ProductsOnDevice, DocumentsFollowTheHost) {
  for (const auto& s : {AttentionShape{2, 13, 6, 2, 10}, {3, 90, 4, 4, 16}, {3, 90, 4, 4, 16, 5}}) {
    compare_attention(AttentionLibrary::dense, s, at::kFloat, 1e-5, documents_of(s));
    compare_attention(AttentionLibrary::dense, s, at::kBFloat16, 1e-2, documents_of(s));
  }
  if (!test::on_gpu()) return;  // the rest is libtorch's
  for (const auto library : {AttentionLibrary::flash, AttentionLibrary::cudnn})
    for (const auto& s : {AttentionShape{2, 128, 4, 2, 64}, {3, 77, 6, 2, 32}, {3, 77, 6, 2, 32, 6}})
      compare_attention(library, s, at::kBFloat16, 2e-2, documents_of(s));
}

TEST_F(ProductsOnDevice, FlashAndCudnnAttentionFollowTheHost) {
  if (!test::on_gpu()) GTEST_SKIP() << "libtorch has these kernels for GPUs only";
  for (const auto library : {AttentionLibrary::flash, AttentionLibrary::cudnn})
    for (const auto& s : {AttentionShape{2, 128, 4, 2, 64},
                          {1, 200, 8, 8, 128},
                          {3, 77, 6, 2, 32},
                          {2, 128, 4, 2, 64, 2},  // with 1 the gradients of queries and keys are 0
                          {1, 200, 8, 2, 128, 33},
                          {3, 77, 6, 2, 32, 76}})
      compare_attention(library, s, at::kBFloat16, 2e-2);
}

TEST_F(ProductsOnDevice, TheMeasuredAttentionAgreesWithTheHost) {
  if (!test::on_gpu()) GTEST_SKIP() << "nothing to measure";
  const AttentionShape s{1, 256, 8, 2, 64};
  const AttentionLibrary library = measure_attention(s);
  EXPECT_NE(library, AttentionLibrary::dense) << "neither flash nor cuDNN ran and was right";
  compare_attention(library, s, at::kBFloat16, 2e-2);
}

TEST(AttentionLibraries, PrintAndParseBack) {
  for (const auto& [library, name] : attention_libraries) {
    EXPECT_EQ(to_text(library), name);
    EXPECT_EQ(parse_attention_library(name), library);
  }
}

}  // namespace
}  // namespace trireme::kernels
