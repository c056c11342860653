// SPDX-License-Identifier: Apache-2.0
//
// Kernels on a GPU at the shapes of Llama 1B (hidden 2048, intermediate 8192, vocabulary 128256, 32 heads of 64, 8 key
// and value heads) with 4 sequences of 4096 tokens, in bf16:
//   kernels_gpu_bench [--benchmark_filter=norm]
// GBps: bytes a kernel must move over time, against a copy on the device of as many bytes (`other`); `ratio` is the
// share of the copy's speed (goal: 0.85). TFLOPs: matrix products and attention. The best of a benchmark's calls, by
// the host's clock around several calls and a wait for the device.
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "kernels/cuda/attention_heads.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/kernels/cast.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/embedding.hpp"
#include "trireme/kernels/experts.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/grouped.hpp"
#include "trireme/kernels/layer_norm.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/rope.hpp"
#include "trireme/kernels/swiglu.hpp"
#include "trireme/optim/device.hpp"

namespace trireme::kernels_gpu_bench {
namespace {

using benchmark::State;
using Work = std::function<void()>;

constexpr std::int64_t tokens = 16384, seq_len = 4096, hidden = 2048, inner = 8192, vocab = 128256;
constexpr std::int64_t heads = 32, kv_heads = 8, head_dim = 64;

void wait() { at::detail::getCUDAHooks().deviceSynchronize(0); }

/// Seconds of one call, from a few in a row.
double seconds(const Work& work) {
  constexpr int calls = 5;
  using Clock = std::chrono::steady_clock;
  wait();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) work();
  wait();
  return std::chrono::duration<double>(Clock::now() - begin).count() / calls;
}

void measure(State& state, double amount, const char* rate, const Work& ours, const Work& other) {
  double best = std::numeric_limits<double>::infinity(), other_best = best;
  ours();
  for (auto _ : state) {
    if (other) other_best = std::min(other_best, seconds(other));
    const double time = seconds(ours);
    best = std::min(best, time);
    state.SetIterationTime(time);
  }
  state.counters[rate] = amount / best;
  if (!other) return;
  state.counters["other"] = amount / other_best;
  state.counters["ratio"] = other_best / best;
}

at::TensorOptions bf16() { return at::TensorOptions(at::kCUDA).dtype(at::kBFloat16); }
at::TensorOptions fp32() { return at::TensorOptions(at::kCUDA).dtype(at::kFloat); }

/// A kernel that must move `bytes`.
void memory(State& state, double bytes, const Work& kernel) {
  const at::Tensor from =
      at::empty({static_cast<std::int64_t>(bytes / 2)}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  at::Tensor to = at::empty_like(from);
  measure(state, bytes * 1e-9, "GBps", kernel, [&] { to.copy_(from); });
}

template <class Body>
void add(const char* name, Body body) {
  benchmark::RegisterBenchmark(name,
                               [body](State& state) {
                                 if (at::detail::getCUDAHooks().deviceCount() == 0)
                                   return state.SkipWithError("no GPU here");
                                 body(state);
                               })
      ->UseManualTime()
      ->MinTime(0.05);
}

void memory_kernels() {
  constexpr double row = 2.0 * tokens * hidden;  // bytes
  add("rms_norm/forward", [](State& s) {
    const at::Tensor x = at::randn({tokens, hidden}, bf16()), w = at::randn({hidden}, bf16()), y = at::empty_like(x),
                     r = at::empty({tokens}, fp32());
    memory(s, 2 * row, [&] { kernels::rms_norm(x, w, 1e-5, y, r); });
  });
  add("rms_norm/backward", [](State& s) {
    const at::Tensor x = at::randn({tokens, hidden}, bf16()), g = at::randn({tokens, hidden}, bf16()),
                     w = at::randn({hidden}, bf16()), y = at::empty_like(x), r = at::ones({tokens}, fp32()),
                     d_w = at::zeros({hidden}, fp32());
    memory(s, 4 * row, [&] { kernels::rms_norm_backward(g, x, w, r, g, y, {.tensor = d_w, .accumulate = true}); });
  });
  add("layer_norm/backward", [](State& s) {
    const at::Tensor x = at::randn({tokens, hidden}, bf16()), g = at::randn({tokens, hidden}, bf16()),
                     w = at::randn({hidden}, bf16()), y = at::empty_like(x), r = at::ones({2, tokens}, fp32()),
                     d_w = at::zeros({hidden}, fp32()), d_b = at::zeros({hidden}, fp32());
    memory(s, 4 * row, [&] { kernels::layer_norm_backward(g, x, w, r, g, y, {d_w, true}, {d_b, true}); });
  });
  // Qwen3's heads of 128: queries and keys are normed, values are adjacent.
  static constexpr std::int64_t normed = 32 + 8, wide = 128;
  static constexpr double of_heads = 2.0 * tokens * normed * wide;  // bytes
  const auto head_norms = [] {
    return kernels::HeadNorms{at::randn({wide}, bf16()), at::randn({wide}, bf16()), 32, wide};
  };
  add("rms_norm_heads/forward", [=](State& s) {
    const at::Tensor x = at::randn({tokens, normed * wide}, bf16()), y = at::empty_like(x),
                     r = at::empty({normed, tokens}, fp32());
    memory(s, 2 * of_heads, [&, n = head_norms()] { kernels::rms_norm_heads(x, n, 1e-6, y, r, false); });
  });
  add("rms_norm_heads/backward", [=](State& s) {
    const at::Tensor x = at::randn({tokens, normed * wide}, bf16()), g = at::randn_like(x), y = at::empty_like(x),
                     r = at::ones({normed, tokens}, fp32()), d_q = at::zeros({wide}, fp32()), d_k = at::zeros_like(d_q);
    memory(s, 3 * of_heads, [&, n = head_norms()] {
      kernels::rms_norm_heads_backward(g, x, n, r, y, {d_q, true}, {d_k, true});
    });
  });
  add("rotate", [](State& s) {
    auto table = kernels::rope_table(seq_len, head_dim, 500000, std::nullopt);
    table = {.cos = table.cos.cuda(), .sin = table.sin.cuda()};
    const at::Tensor qkv = at::randn({tokens, (heads + 2 * kv_heads) * head_dim}, bf16());
    const at::Tensor x = qkv.slice(1, 0, (heads + kv_heads) * head_dim);
    memory(s, 4.0 * tokens * (heads + kv_heads) * head_dim,
           [&] { kernels::rotate(x, table, seq_len, kernels::Rotation::forward); });
  });
  add("place_gradients", [](State& s) {
    auto table = kernels::rope_table(seq_len, head_dim, 500000, std::nullopt);
    table = {.cos = table.cos.cuda(), .sin = table.sin.cuda()};
    const kernels::AttentionShape shape{tokens / seq_len, seq_len, heads, kv_heads, head_dim};
    const auto by_library = [&](std::int64_t n) {
      return at::randn({shape.batch, seq_len, n, head_dim}, bf16()).transpose(1, 2);
    };
    const at::Tensor q = by_library(heads), k = by_library(kv_heads), v = by_library(kv_heads);
    constexpr std::int64_t q_end = heads * head_dim, k_end = q_end + kv_heads * head_dim;
    const at::Tensor d = at::empty({tokens, k_end + kv_heads * head_dim}, bf16());
    memory(s, 4.0 * static_cast<double>(d.numel()), [&] {
      kernels::cuda::put_gradients({q, k, v}, shape, {.queries = table, .keys = table},
                                   {d.slice(1, 0, q_end), d.slice(1, q_end, k_end), d.slice(1, k_end)});
    });
  });
  add("swiglu/forward", [](State& s) {
    const at::Tensor x = at::randn({tokens, 2 * inner}, bf16()), y = at::empty({tokens, inner}, bf16());
    memory(s, 6.0 * tokens * inner, [&] { kernels::swiglu(x, y); });
  });
  add("swiglu/backward", [](State& s) {
    const at::Tensor x = at::randn({tokens, 2 * inner}, bf16()), d = at::empty_like(x),
                     g = at::randn({tokens, inner}, bf16()), y = at::empty_like(g);
    memory(s, 12.0 * tokens * inner, [&] { kernels::swiglu_backward(g, x, d, y); });
  });
  add("cross_entropy/backward", [](State& s) {
    const at::Tensor x = at::randn({4096, vocab}, bf16()), loss = at::zeros({2}, fp32().dtype(at::kDouble)),
                     t = at::randint(0, vocab, {4096}, fp32().dtype(at::kInt));
    memory(s, 4.0 * 4096 * vocab, [&] { kernels::add_cross_entropy_backward(x, t, 1.0, 0, loss); });
  });
  add("embedding/gather", [](State& s) {
    const at::Tensor table = at::randn({vocab, hidden}, bf16()), y = at::empty({tokens, hidden}, bf16()),
                     t = at::randint(0, vocab, {tokens}, fp32().dtype(at::kInt));
    memory(s, 2 * row, [&] { kernels::embedding_gather(t, table, y); });
  });
  add("embedding/scatter_add", [](State& s) {
    const at::Tensor grad = at::zeros({vocab, hidden}, fp32()), g = at::randn({tokens, hidden}, bf16()),
                     t = at::randint(0, vocab, {tokens}, fp32().dtype(at::kInt));
    memory(s, 5 * row, [&] { kernels::embedding_scatter_add(t, g, {.tensor = grad, .accumulate = true}); });
  });
  add("cast", [](State& s) {
    const at::Tensor x = at::randn({1 << 28}, fp32()), y = at::empty({1 << 28}, bf16());
    memory(s, 6.0 * (1 << 28), [&] { kernels::cast(x, y); });
  });
}

/// Qwen3-30B-A3B's experts: 8 of 128 for each of 8192 tokens, 768 wide.
void expert_kernels() {
  static constexpr std::int64_t of_token = 8, size = 768, some = 8192, rows = some * of_token;
  static constexpr double row = 2.0 * rows * hidden, inner_row = 2.0 * rows * size;  // bytes
  static const model::Experts router{.count = 128, .per_token = of_token};
  const auto logits = [] { return at::randn({some, router.count}, fp32()); };
  const auto sorted = [=] {
    const at::Tensor choice = kernels::choose_experts(logits(), router, {});
    kernels::ExpertRows by_expert = kernels::expert_rows(choice, router.count);
    kernels::fetch_begin(by_expert);
    return by_expert;
  };
  add("experts/choose", [=](State& s) {
    const at::Tensor x = logits();
    measure(s, 1e-6 * some, "Mtokens", [&] { (void)kernels::choose_experts(x, router, {}); }, {});
  });
  add("experts/sort", [=](State& s) {
    const at::Tensor choice = kernels::choose_experts(logits(), router, {});
    measure(s, 1e-6 * some, "Mtokens", [&] { (void)kernels::expert_rows(choice, router.count); }, {});
  });
  add("experts/router_backward", [=](State& s) {
    const at::Tensor x = logits(), d = at::empty_like(x), choice = kernels::choose_experts(x, router, {}),
                     w = at::randn({some, of_token}, fp32());
    measure(s, 1e-6 * some, "Mtokens",
            [&] { (void)kernels::router_backward(w, x, choice, {.length = seq_len}, router, {.balance = 1e-3}, d); },
            {});
  });
  add("experts/gather_rows", [=](State& s) {
    const at::Tensor x = at::randn({some, hidden}, bf16());
    memory(s, row + row / of_token, [&, by = sorted()] { (void)kernels::gather_rows(x, by); });
  });
  add("experts/sum_rows", [=](State& s) {
    const at::Tensor x = at::randn({rows, hidden}, bf16()), y = at::randn({some, hidden}, bf16());
    memory(s, row + 2 * row / of_token, [&, by = sorted()] { kernels::sum_rows(x, by, y, y); });
  });
  add("experts/scale_rows", [=](State& s) {
    const at::Tensor x = at::randn({rows, size}, bf16()), w = at::randn({some, of_token}, fp32());
    memory(s, 2 * inner_row, [&, by = sorted()] { kernels::scale_rows(x, w, by, x); });
  });
  add("experts/weight_gradients", [=](State& s) {
    const at::Tensor x = at::randn({rows, size}, bf16()), d = at::randn({rows, size}, bf16());
    memory(s, 2 * inner_row, [&, by = sorted()] { (void)kernels::weight_gradients(d, x, by); });
  });
  add("experts/grouped_product", [=](State& s) {
    const at::Tensor x = at::randn({rows, hidden}, bf16()), w = at::randn({router.count, 2 * size, hidden}, bf16());
    if (!kernels::multiplies_in_groups(x, w)) return s.SkipWithError("no grouped product here");
    measure(s, 4e-12 * rows * hidden * size, "TFLOPs",
            [&, by = sorted()] { (void)kernels::grouped_product(x, w.transpose(1, 2), by.begin); }, {});
  });
}

void optimizer() {
  static constexpr std::int64_t elements = 1 << 28;
  add("adamw", [](State& s) {
    const at::Tensor g = at::randn({elements}, fp32()), compute = at::empty({elements}, bf16());
    const optim::DeviceState state{at::randn({elements}, fp32()), at::zeros({elements}, fp32()),
                                   at::zeros({elements}, fp32())};
    const std::vector<optim::UpdateRange> all{{{0, elements}, 0}};
    memory(s, 30.0 * elements, [&] { optim::adamw({.lr = 1e-4, .weight_decay = {0.1, 0}}, all, g, state, compute); });
  });
  add("sum_of_squares", [](State& s) {
    const at::Tensor g = at::randn({elements}, fp32()), sum = at::zeros({1}, fp32().dtype(at::kDouble));
    memory(s, 4.0 * elements, [&] { optim::sum_of_squares(g, {0, elements}, sum); });
  });
}

void products() {
  add("gemm/forward", [](State& s) {
    const at::Tensor x = at::randn({tokens, hidden}, bf16()), w = at::randn({2 * inner, hidden}, bf16());
    measure(s, 4e-12 * tokens * hidden * inner, "TFLOPs", [&] { (void)kernels::linear(x, w); }, {});
  });
  add("gemm/backward_input", [](State& s) {
    const at::Tensor g = at::randn({tokens, 2 * inner}, bf16()), w = at::randn({2 * inner, hidden}, bf16());
    measure(s, 4e-12 * tokens * hidden * inner, "TFLOPs", [&] { (void)kernels::linear_backward_input(g, w); }, {});
  });
  for (const bool accumulate : {false, true})
    add(accumulate ? "gemm/backward_weight_add" : "gemm/backward_weight", [=](State& s) {
      const at::Tensor g = at::randn({tokens, 2 * inner}, bf16()), x = at::randn({tokens, hidden}, bf16()),
                       grad = at::zeros({2 * inner, hidden}, fp32());
      measure(s, 4e-12 * tokens * hidden * inner, "TFLOPs",
              [&] { kernels::linear_backward_weight(g, x, {.tensor = grad, .accumulate = accumulate}); }, {});
    });
  for (const auto library : {kernels::AttentionLibrary::flash, kernels::AttentionLibrary::cudnn})
    add(library == kernels::AttentionLibrary::flash ? "attention/flash" : "attention/cudnn", [=](State& s) {
      // Forward and backward, the causal half counted.
      const kernels::AttentionShape shape{tokens / seq_len, seq_len, heads, kv_heads, head_dim};
      const std::int64_t q_end = heads * head_dim, k_end = q_end + kv_heads * head_dim;
      const at::Tensor qkv = at::randn({tokens, k_end + kv_heads * head_dim}, bf16()), d = at::empty_like(qkv),
                       out = at::empty({tokens, q_end}, bf16()), g = at::randn({tokens, q_end}, bf16()),
                       lse = at::empty({shape.batch, heads, seq_len}, fp32());
      const auto q = [&](const at::Tensor& t) { return t.slice(1, 0, q_end); };
      const auto k = [&](const at::Tensor& t) { return t.slice(1, q_end, k_end); };
      const auto v = [&](const at::Tensor& t) { return t.slice(1, k_end); };
      try {
        kernels::set_attention_library(library);
        measure(s, 3.5 * 2e-12 * tokens * seq_len * heads * head_dim, "TFLOPs",
                [&] {
                  kernels::causal_attention(q(qkv), k(qkv), v(qkv), shape, out, lse);
                  kernels::causal_attention_backward(g, q(qkv), k(qkv), v(qkv), out, lse, shape, q(d), k(d), v(d));
                },
                {});
      } catch (const std::exception& error) {
        s.SkipWithError(error.what());
      }
    });
}

const bool registered = (memory_kernels(), expert_kernels(), optimizer(), products(), true);

}  // namespace
}  // namespace trireme::kernels_gpu_bench
