// SPDX-License-Identifier: Apache-2.0
//
// Limits of a training step of Llama 1B (4 x 4096 tokens) and 3B (2 x 4096) on one GPU in bf16, at sustained clocks:
//   gpu_limits_bench --benchmark_filter=^attention/   the libraries' attention: layouts, forward and backward apart
//   gpu_limits_bench --benchmark_filter=^products/    products: the fastest of 8 and of 64 algorithms
//   gpu_limits_bench --benchmark_filter=^overlap/     AdamW on a part of the multiprocessors, concurrent with products
// Rates are means over calls without pauses, after a second of the same work.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/blas_product.hpp"
#include "trireme/kernels/attention_library.hpp"
#include "trireme/optim/device.hpp"

namespace trireme::gpu_limits_bench {
namespace {

using benchmark::State;
using Work = std::function<void()>;
using Clock = std::chrono::steady_clock;

constexpr double heating_seconds = 1, measured_seconds = 0.7;

struct Model {
  const char* name;
  std::int64_t batch, hidden, inner, heads, kv_heads, head_dim;
  std::int64_t seq_len = 4096, vocab = 128256;
  [[nodiscard]] std::int64_t tokens() const { return batch * seq_len; }
};
constexpr Model models[] = {
    {.name = "1b", .batch = 4, .hidden = 2048, .inner = 8192, .heads = 32, .kv_heads = 8, .head_dim = 64},
    {.name = "3b", .batch = 2, .hidden = 3072, .inner = 8192, .heads = 24, .kv_heads = 8, .head_dim = 128}};

at::TensorOptions bf16() { return at::TensorOptions(at::kCUDA).dtype(at::kBFloat16); }
at::TensorOptions fp32() { return at::TensorOptions(at::kCUDA).dtype(at::kFloat); }

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Seconds of one call while `span` seconds of calls follow each other, about 20 ms of them between two waits.
double repeated(const Work& work, double span) {
  work();
  c10::cuda::device_synchronize();
  double begin = now();
  work();
  c10::cuda::device_synchronize();
  const int batch = std::clamp(static_cast<int>(0.02 / std::max(now() - begin, 1e-6)), 1, 200);
  int calls = 0;
  begin = now();
  do {
    for (int i = 0; i < batch; ++i) work();
    c10::cuda::device_synchronize();
    calls += batch;
  } while (now() - begin < span);
  return (now() - begin) / calls;
}

double sustained(const Work& work) {
  (void)repeated(work, heating_seconds);
  return repeated(work, measured_seconds);
}

void add(const std::string& name, std::function<void(State&)> body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body = std::move(body)](State& state) {
                                 if (c10::cuda::device_count() == 0) return state.SkipWithError("no GPU here");
                                 try {
                                   body(state);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->Iterations(1);
}

/// One measurement: what google-benchmark's loop gets is the time of a call.
void report(State& state, double seconds) {
  for (auto _ : state) state.SetIterationTime(seconds);
}

// ---- attention

/// step: slices of one tensor of all heads, as projections write them. tokens: contiguous [batch, tokens, heads,
/// head_dim] each. heads: contiguous [batch, heads, tokens, head_dim] each.
enum class Layout { step, tokens, heads };

struct Attention {
  at::Tensor q, k, v, d_out;  ///< [batch, heads, tokens, head_dim] views

  Attention(const Model& m, Layout layout) {
    const auto by_head = [&](const at::Tensor& x, std::int64_t n) {
      return x.view({m.batch, m.seq_len, n, m.head_dim}).transpose(1, 2);
    };
    const auto of = [&](std::int64_t n) {
      if (layout == Layout::heads) return at::randn({m.batch, n, m.seq_len, m.head_dim}, bf16());
      return by_head(at::randn({m.tokens(), n * m.head_dim}, bf16()), n);
    };
    d_out = of(m.heads);
    if (layout != Layout::step) {
      q = of(m.heads), k = of(m.kv_heads), v = of(m.kv_heads);
      return;
    }
    const at::Tensor all =
        by_head(at::randn({m.tokens(), (m.heads + 2 * m.kv_heads) * m.head_dim}, bf16()), m.heads + 2 * m.kv_heads);
    q = all.slice(1, 0, m.heads);
    k = all.slice(1, m.heads, m.heads + m.kv_heads);
    v = all.slice(1, m.heads + m.kv_heads);
  }
};

void attention(State& state, const Model& m, kernels::AttentionLibrary library, Layout layout, bool backward) {
  const Attention a(m, layout);
  const double causal = 2.0 * static_cast<double>(m.tokens() * m.seq_len * m.heads * m.head_dim);
  double seconds = 0;
  const std::int64_t t = m.seq_len;
  if (library == kernels::AttentionLibrary::cudnn) {
    const auto run = [&] {
      return at::_scaled_dot_product_cudnn_attention(a.q, a.k, a.v, std::nullopt, true, 0.0, true, false, std::nullopt);
    };
    const auto [out, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] = run();
    const at::Tensor &o = out, &l = lse, &cq = cum_q, &ck = cum_k, &s = seed, &f = offset;
    seconds = !backward ? sustained([&] { (void)run(); }) : sustained([&] {
      (void)at::_scaled_dot_product_cudnn_attention_backward(a.d_out, a.q, a.k, a.v, o, l, s, f, {}, cq, ck, t, t, 0.0,
                                                             true);
    });
  } else {
    const auto run = [&] { return at::_scaled_dot_product_flash_attention(a.q, a.k, a.v, 0.0, true, false); };
    const auto [out, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] = run();
    const at::Tensor &o = out, &l = lse, &cq = cum_q, &ck = cum_k, &s = seed, &f = offset;
    seconds = !backward ? sustained([&] { (void)run(); }) : sustained([&] {
      (void)at::_scaled_dot_product_flash_attention_backward(a.d_out, a.q, a.k, a.v, o, l, cq, ck, t, t, 0.0, true, s,
                                                             f);
    });
  }
  state.counters["TFLOPs"] = (backward ? 2.5 : 1) * causal / seconds * 1e-12;  // of the causal half
  report(state, seconds);
}

void attention_of_models() {
  for (const Model& m : models)
    for (const auto library : {kernels::AttentionLibrary::cudnn, kernels::AttentionLibrary::flash})
      for (const auto& [layout, of] :
           {std::pair{Layout::step, "step"}, {Layout::tokens, "tokens"}, {Layout::heads, "heads"}})
        for (const bool backward : {false, true})
          add(fmt::format("attention/{}/{}/{}/{}", m.name, kernels::to_text(library), of,
                          backward ? "backward" : "forward"),
              [=](State& state) { attention(state, m, library, layout, backward); });
}

// ---- products

constexpr int few = 8, many = 64;  ///< candidates of a training run, and of the comparison

struct Choice {
  double tflops = 0;
  int tried = 0;
};
/// The sustained rate of the fastest of up to `most` algorithms, as `multiply` selects it.
Choice choice(const kernels::cuda::Operands& o, int most, double flops) {
  kernels::cuda::Product product(o, kernels::cuda::Operands::Alike::shape, most);
  if (!product.possible()) throw std::runtime_error("cuBLAS has no algorithm");
  const at::Tensor memory =
      at::empty({static_cast<std::int64_t>(product.workspace_bytes(true)) + 1}, bf16().dtype(at::kByte));
  const int tried = product.measure(o, memory.mutable_data_ptr());
  const double seconds = repeated([&] { (void)product.run(o, memory.mutable_data_ptr()); }, measured_seconds / 2);
  return {.tflops = flops / seconds * 1e-12, .tried = tried};
}

void product(State& state, const at::Tensor& a, const at::Tensor& b, const at::Tensor& d) {
  const auto o = kernels::cuda::Operands::of(a, b, {}, d);
  if (!o) throw std::runtime_error("not a product of cuBLAS");
  const double flops = 2.0 * static_cast<double>(a.size(0) * a.size(1) * b.size(1));
  (void)choice(*o, 1, flops);
  // By turns, so that both have the same clocks.
  Choice first{}, other{};
  for (int turn = 0; turn < 2; ++turn) {
    const Choice f = choice(*o, few, flops), m = choice(*o, many, flops);
    if (f.tflops > first.tflops) first = f;
    if (m.tflops > other.tflops) other = m;
  }
  state.counters["TFLOPs"] = first.tflops;
  state.counters["of_many"] = other.tflops;
  state.counters["algorithms"] = other.tried;
  state.counters["ratio"] = other.tflops / first.tflops;
  report(state, flops / first.tflops * 1e-12);
}

void products_of_models() {
  for (const Model& m : models) {
    struct Weight {
      const char* name;
      std::int64_t rows, columns, tokens;
    };
    const std::int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_dim;
    for (const Weight& w :
         {Weight{"qkv", qkv, m.hidden, m.tokens()}, Weight{"out", m.hidden, m.hidden, m.tokens()},
          Weight{"gate_up", 2 * m.inner, m.hidden, m.tokens()}, Weight{"down", m.hidden, m.inner, m.tokens()},
          Weight{"head", m.vocab, m.hidden, m.seq_len}}) {
      const auto x = [=] { return at::randn({w.tokens, w.columns}, bf16()); };
      const auto g = [=] { return at::randn({w.tokens, w.rows}, bf16()); };
      const auto weight = [=] { return at::randn({w.rows, w.columns}, bf16()); };
      const std::string name = fmt::format("products/{}/{}/", m.name, w.name);
      add(name + "forward", [=](State& s) { product(s, x(), weight().t(), at::empty({w.tokens, w.rows}, bf16())); });
      add(name + "input", [=](State& s) { product(s, g(), weight(), at::empty({w.tokens, w.columns}, bf16())); });
      add(name + "weight", [=](State& s) { product(s, g().t(), x(), at::empty({w.rows, w.columns}, fp32())); });
    }
  }
}

// ---- AdamW concurrent with products

template <class Function>
Function* driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  if (cudaGetDriverEntryPointByVersion(name, &found, 12040, cudaEnableDefault, &result) != cudaSuccess ||
      result != cudaDriverEntryPointSuccess || found == nullptr)
    throw std::runtime_error(fmt::format("the driver has no {}: it is older than CUDA 12.4", name));
  return reinterpret_cast<Function*>(found);
}

void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(fmt::format("{}: error {}", what, static_cast<int>(result)));
}

/// Two streams: one on `few` multiprocessors, the other on all others. Contexts live until the program ends.
struct Split {
  int small = 0, rest = 0;  ///< multiprocessors
  CUstream on_small = nullptr, on_rest = nullptr;

  explicit Split(unsigned multiprocessors) {
    CUdevice gpu = 0;
    check(driver<decltype(cuDeviceGet)>("cuDeviceGet")(&gpu, 0), "cuDeviceGet");
    CUdevResource all{}, part{}, others{};
    check(driver<decltype(cuDeviceGetDevResource)>("cuDeviceGetDevResource")(gpu, &all, CU_DEV_RESOURCE_TYPE_SM),
          "cuDeviceGetDevResource");
    unsigned groups = 1;
    check(driver<decltype(cuDevSmResourceSplitByCount)>("cuDevSmResourceSplitByCount")(&part, &groups, &all, &others, 0,
                                                                                       multiprocessors),
          "cuDevSmResourceSplitByCount");
    small = static_cast<int>(part.sm.smCount), rest = static_cast<int>(others.sm.smCount);
    on_small = stream(gpu, part), on_rest = stream(gpu, others);
  }

  static CUstream stream(CUdevice gpu, CUdevResource& resource) {
    CUdevResourceDesc description{};
    check(driver<decltype(cuDevResourceGenerateDesc)>("cuDevResourceGenerateDesc")(&description, &resource, 1),
          "cuDevResourceGenerateDesc");
    CUgreenCtx context{};
    check(
        driver<decltype(cuGreenCtxCreate)>("cuGreenCtxCreate")(&context, description, gpu, CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate");
    CUstream made{};
    check(driver<decltype(cuGreenCtxStreamCreate)>("cuGreenCtxStreamCreate")(&made, context, CU_STREAM_NON_BLOCKING, 0),
          "cuGreenCtxStreamCreate");
    return made;
  }
};

/// AdamW of 2^29 parameters once, and 3B's product of gate and up as often as they fill `product_seconds`.
struct Pair {
  static constexpr std::int64_t elements = 1 << 29;
  static constexpr double product_seconds = 0.1;
  at::Tensor gradient = at::randn({elements}, fp32()), compute = at::empty({elements}, bf16());
  optim::DeviceState state{at::randn({elements}, fp32()), at::zeros({elements}, fp32()), at::zeros({elements}, fp32())};
  std::vector<optim::UpdateRange> all{{{0, elements}, 0}};
  at::Tensor x = at::randn({models[1].tokens(), models[1].hidden}, bf16()),
             w = at::randn({2 * models[1].inner, models[1].hidden}, bf16()),
             y = at::empty({models[1].tokens(), 2 * models[1].inner}, bf16());
  kernels::cuda::Operands operands = *kernels::cuda::Operands::of(x, w.t(), {}, y);
  kernels::cuda::Product product{operands, kernels::cuda::Operands::Alike::shape, few};
  at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(product.workspace_bytes(true)) + 1}, bf16().dtype(at::kByte));
  int products = 0;

  Pair() {
    product.measure(operands, workspace.mutable_data_ptr());
    products = static_cast<int>(product_seconds / sustained([&] { multiply(); }));
  }
  void multiply() { (void)product.run(operands, workspace.mutable_data_ptr()); }
  void update() { optim::adamw({.lr = 1e-4, .weight_decay = {0.1, 0}}, all, gradient, state, compute); }
};

void on(CUstream stream, const Work& work) {
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(stream, 0));
  work();
}

/// gain: the share of AdamW's own time that disappears behind the products, compared with both one after the other on
/// the whole GPU. apart: products leave AdamW's multiprocessors alone; else they run on all.
void overlap(State& state, unsigned multiprocessors, bool apart) {
  Pair pair;
  const Split split(multiprocessors);
  const auto products = [&] {
    for (int i = 0; i < pair.products; ++i) pair.multiply();
  };
  const double alone = sustained(products), update = sustained([&] { pair.update(); });
  cudaStream_t on_all = nullptr;
  if (cudaStreamCreateWithFlags(&on_all, cudaStreamNonBlocking) != cudaSuccess) throw std::runtime_error("no stream");
  const double both = sustained([&] {
    on(split.on_small, [&] { pair.update(); });
    on(apart ? split.on_rest : on_all, products);
    c10::cuda::device_synchronize();
  });
  const double slow = sustained([&] { on(split.on_small, [&] { pair.update(); }); });
  state.counters["multiprocessors"] = split.small;
  state.counters["products_ms"] = alone * 1e3;
  state.counters["adamw_ms"] = update * 1e3;
  state.counters["adamw_on_part_ms"] = slow * 1e3;
  state.counters["both_ms"] = both * 1e3;
  state.counters["gain"] = (alone + update - both) / update;
  report(state, both);
}

void overlaps() {
  for (const unsigned multiprocessors : {8U, 16U, 32U})
    for (const bool apart : {true, false})
      add(fmt::format("overlap/{}/{}", multiprocessors, apart ? "products on the others" : "products on all"),
          [=](State& state) { overlap(state, multiprocessors, apart); });
}

const bool registered = (attention_of_models(), products_of_models(), overlaps(), true);

}  // namespace
}  // namespace trireme::gpu_limits_bench
