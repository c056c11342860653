// SPDX-License-Identifier: Apache-2.0
//
// Kernels at the benchmark's shapes (hidden 512, intermediate 1376, vocabulary 32000, 512 tokens, 8 heads, 4 kv heads),
// one thread:
//   OMP_NUM_THREADS=1 kernels_bench [--benchmark_filter=attention]
// GFLOPs: matrix products of each library; attention (causal half counted) against libtorch's fused kernel (`other`).
// GBps: memory kernels, bytes they must move over time, against a plain copy of as many bytes (`other`).
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <cstring>

#include "bench/measure.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/cast.hpp"
#include "trireme/kernels/cross_entropy.hpp"
#include "trireme/kernels/embedding.hpp"
#include "trireme/kernels/gemm_library.hpp"
#include "trireme/kernels/rms_norm.hpp"
#include "trireme/kernels/rope.hpp"
#include "trireme/kernels/swiglu.hpp"

namespace trireme::kernels_bench {
namespace {

using benchmark::State;
using kernels::GemmLibrary;

constexpr std::int64_t tokens = 512, hidden = 512, intermediate = 1376, vocab = 32000;

at::Tensor random(at::IntArrayRef shape, at::ScalarType type) { return at::randn(shape).to(type); }

enum class Product { forward, input, weight };

void gemm(State& state, Product product, GemmLibrary library, at::ScalarType type, std::int64_t out, std::int64_t in) {
  const at::Tensor x = random({tokens, in}, type), w = random({out, in}, type), d_y = random({tokens, out}, type);
  const kernels::Grad grad{.tensor = at::ones({out, in}), .accumulate = true};
  const double flops = 2.0 * static_cast<double>(tokens * in * out);
  try {
    bench::measure(state, flops, "GFLOPs", [&] {
      if (product == Product::forward) benchmark::DoNotOptimize(kernels::linear(library, x, w));
      if (product == Product::input) benchmark::DoNotOptimize(kernels::linear_backward_input(library, d_y, w));
      if (product == Product::weight) kernels::linear_backward_weight(library, d_y, x, grad);
    });
  } catch (const std::exception&) {
    state.SkipWithError("cannot run on this CPU");
  }
}

struct Attention {
  kernels::AttentionShape shape{.batch = 1, .seq_len = tokens, .heads = 8, .kv_heads = 4, .head_dim = 64};
  at::Tensor qkv, q, k, v, d_out, out, lse, d_qkv;
  at::Tensor q4, k4, v4, d_out4;  ///< [B, heads, T, head_dim], keys and values expanded: what libtorch takes

  explicit Attention(at::ScalarType type) {
    qkv = random({tokens, 1024}, type);
    d_out = random({tokens, 512}, type);
    out = at::empty_like(d_out);
    d_qkv = at::empty_like(qkv);
    lse = at::empty({1, 8, tokens});
    q = qkv.slice(1, 0, 512), k = qkv.slice(1, 512, 768), v = qkv.slice(1, 768);
    const auto heads = [](const at::Tensor& x, std::int64_t n) { return x.view({1, tokens, n, 64}).transpose(1, 2); };
    q4 = heads(q, 8), d_out4 = heads(d_out, 8);
    k4 = heads(k, 4).repeat_interleave(2, 1), v4 = heads(v, 4).repeat_interleave(2, 1);
  }
};

constexpr double attention_flops = 4.0 * 512 * 512 * 64 * 8 / 2;

void attention_forward(State& state, at::ScalarType type) {
  const Attention a(type);
  bench::compare(
      state, attention_flops, "GFLOPs", [&] { kernels::causal_attention(a.q, a.k, a.v, a.shape, a.out, a.lse); },
      [&] { benchmark::DoNotOptimize(at::_scaled_dot_product_flash_attention_for_cpu(a.q4, a.k4, a.v4, 0.0, true)); });
}

void attention_backward(State& state, at::ScalarType type) {
  const Attention a(type);
  kernels::causal_attention(a.q, a.k, a.v, a.shape, a.out, a.lse);
  const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(a.q4, a.k4, a.v4, 0.0, true);
  bench::compare(
      state, 2.5 * attention_flops, "GFLOPs",
      [&] {
        kernels::causal_attention_backward(a.d_out, a.q, a.k, a.v, a.out, a.lse, a.shape, a.d_qkv.slice(1, 0, 512),
                                           a.d_qkv.slice(1, 512, 768), a.d_qkv.slice(1, 768));
      },
      [&, out = out, lse = lse] {
        benchmark::DoNotOptimize(
            at::_scaled_dot_product_flash_attention_for_cpu_backward(a.d_out4, a.q4, a.k4, a.v4, out, lse, 0.0, true));
      });
}

/// `moved`: elements that the kernel reads and writes, of `size` bytes.
void memory(State& state, double moved, std::int64_t size, const std::function<void()>& kernel) {
  const auto half = static_cast<std::size_t>(moved * static_cast<double>(size) / 2);
  const std::vector<char> from(half, 1);
  std::vector<char> to(half);
  bench::compare(state, static_cast<double>(2 * half), "GBps", kernel, [&] {
    std::memcpy(to.data(), from.data(), half);
    benchmark::ClobberMemory();
  });
}

void memory_kernels(at::ScalarType type, const std::string& suffix) {
  const auto add = [&](const std::string& name, auto body) {
    benchmark::RegisterBenchmark((name + suffix).c_str(), body)->UseManualTime()->MinTime(0.2);
  };
  const std::int64_t size = type == at::kFloat ? 4 : 2;
  constexpr double row = tokens * hidden, inner = tokens * intermediate;
  add("rms_norm/forward", [=](State& state) {
    const at::Tensor x = random({tokens, hidden}, type), w = random({hidden}, type), y = at::empty_like(x),
                     r = at::empty({tokens});
    memory(state, 2 * row, size, [&] { kernels::rms_norm(x, w, 1e-5, y, r); });
  });
  add("rms_norm/backward", [=](State& state) {
    const at::Tensor x = random({tokens, hidden}, type), w = random({hidden}, type), y = at::empty_like(x),
                     r = at::ones({tokens});
    const at::Tensor grad = at::empty({hidden});
    memory(state, 4 * row, size,
           [&] { kernels::rms_norm_backward(x, x, w, r, x, y, {.tensor = grad, .accumulate = true}); });
  });
  add("rotate", [=](State& state) {
    const auto table = kernels::rope_table(tokens, 64, 10000, std::nullopt);
    const at::Tensor x = random({tokens, 768}, type);
    memory(state, 3 * row, size, [&] { kernels::rotate(x, table, tokens, kernels::Rotation::forward); });
  });
  add("swiglu/forward", [=](State& state) {
    const at::Tensor x = random({tokens, 2 * intermediate}, type), y = at::empty({tokens, intermediate}, type);
    memory(state, 3 * inner, size, [&] { kernels::swiglu(x, y); });
  });
  add("swiglu/backward", [=](State& state) {
    const at::Tensor x = random({tokens, 2 * intermediate}, type), d = at::empty_like(x),
                     y = random({tokens, intermediate}, type);
    const at::Tensor d_out = y.clone();
    memory(state, 6 * inner, size, [&] { kernels::swiglu_backward(d_out, x, d, y); });
  });
  add("cross_entropy/backward", [=](State& state) {
    const at::Tensor x = random({256, vocab}, type), t = at::randint(0, vocab, {256}, at::kInt);
    memory(state, 2.0 * 256 * vocab, size,
           [&] { benchmark::DoNotOptimize(kernels::cross_entropy_backward(x, t, 1.0, 0)); });
  });
  add("embedding/scatter_add", [=](State& state) {
    const at::Tensor d = random({tokens, hidden}, type), t = at::randint(0, vocab, {tokens}, at::kInt),
                     grad = at::ones({vocab, hidden});
    memory(state, 3 * row, size, [&] { kernels::embedding_scatter_add(t, d, {.tensor = grad, .accumulate = true}); });
  });
  add("cast_from_fp32", [=](State& state) {
    const at::Tensor x = random({1 << 22}, at::kFloat), y = random({1 << 22}, type);
    memory(state, (1 << 22) * (4 + static_cast<double>(size)), 1, [&] { kernels::cast(x, y); });
  });
  add("add_into", [=](State& state) {
    const at::Tensor x = random({1 << 22}, type), y = at::ones({1 << 22});
    memory(state, (1 << 22) * (1.0 + 8.0 / static_cast<double>(size)), size, [&] { kernels::add_into(x, y); });
  });
}

void register_all() {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const std::string suffix = type == at::kFloat ? "/fp32" : "/bf16";
    for (const auto& [out, in] :
         {std::pair{hidden, hidden}, {2 * intermediate, hidden}, {hidden, intermediate}, {vocab, hidden}}) {
      for (const auto& [product, verb] : {std::pair{Product::forward, "forward"},
                                          {Product::input, "backward_input"},
                                          {Product::weight, "backward_weight"}}) {
        for (const auto& [library, name] : kernels::gemm_libraries) {
          const auto label = fmt::format("gemm/{}x{}/{}/{}{}", out, in, verb, name, suffix);
          benchmark::RegisterBenchmark(label.c_str(),
                                       [=, product = product, library = library, out = out, in = in](State& state) {
                                         gemm(state, product, library, type, out, in);
                                       })
              ->UseManualTime()
              ->MinTime(0.2);
        }
      }
    }
    benchmark::RegisterBenchmark(("attention/forward" + suffix).c_str(), attention_forward, type)
        ->UseManualTime()
        ->MinTime(0.3);
    benchmark::RegisterBenchmark(("attention/backward" + suffix).c_str(), attention_backward, type)
        ->UseManualTime()
        ->MinTime(0.3);
    memory_kernels(type, suffix);
  }
}

const bool registered = [] {
  device::install_allocator();
  register_all();
  return true;
}();

}  // namespace
}  // namespace trireme::kernels_bench
