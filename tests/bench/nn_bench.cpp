// SPDX-License-Identifier: Apache-2.0
//
// Stages, forward and backward, against libtorch's eager autograd doing the same, at the benchmark's shape (hidden 512,
// intermediate 1376, 8 heads, 4 kv heads, vocabulary 32000, 512 tokens): OMP_NUM_THREADS=1 nn_bench GFLOPs: 6 per
// weight and token and the causal half of attention over the best time; `other`: libtorch's.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include "bench/measure.hpp"
#include "nn/whole_stage.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/kernels/rope.hpp"

namespace trireme::nn_bench {
namespace {

using benchmark::State;
using model::StageKind;

constexpr std::int64_t tokens = 512;

model::Sizes sizes() {
  return {.vocab = 32000, .hidden = 512, .intermediate = 1376, .layers = 8, .heads = 8, .kv_heads = 4, .head_dim = 64};
}

/// Parameters laid end to end, fp32 gradients likewise, as in training.
struct Flat {
  std::vector<at::Tensor> parameters;
  std::vector<nn::Grad> grads;

  Flat(const std::vector<std::vector<std::int64_t>>& shapes, at::ScalarType type) {
    std::int64_t total = 0;
    for (const auto& shape : shapes) total += at::empty(shape).numel();
    const at::Tensor values = (0.02 * at::randn({total})).to(type);
    const at::Tensor gradients = at::ones({total});
    std::int64_t offset = 0;
    for (const auto& shape : shapes) {
      const std::int64_t n = at::empty(shape).numel();
      parameters.push_back(values.slice(0, offset, offset + n).view(shape));
      grads.push_back({.tensor = gradients.slice(0, offset, offset + n).view(shape), .accumulate = true});
      offset += n;
    }
  }
};

struct Eager {
  std::vector<at::Tensor> p;  ///< leaves; their gradients accumulate, as ours do
  at::Tensor cos, sin;        ///< [T, 64]

  Eager(const Flat& flat, at::ScalarType type) {
    for (const auto& parameter : flat.parameters) p.push_back(parameter.clone().requires_grad_());
    const auto table = kernels::rope_table(tokens, 64, 10000, std::nullopt);
    cos = at::cat({table.cos, table.cos}, 1).to(type);
    sin = at::cat({table.sin, table.sin}, 1).to(type);
  }

  [[nodiscard]] at::Tensor rope(const at::Tensor& x) const {
    return x * cos + at::cat({-x.slice(-1, 32), x.slice(-1, 0, 32)}, -1) * sin;
  }

  [[nodiscard]] at::Tensor attention(const at::Tensor& x) const {
    const at::Tensor h = at::rms_norm(x, {512}, p[0], 1e-5);
    const auto heads = [](const at::Tensor& y, std::int64_t n) { return y.view({1, tokens, n, 64}).transpose(1, 2); };
    const at::Tensor q = rope(heads(at::linear(h, p[1]), 8)), k = rope(heads(at::linear(h, p[2]), 4)),
                     v = heads(at::linear(h, p[3]), 4);
    const at::Tensor a = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true, std::nullopt, true);
    return x + at::linear(a.transpose(1, 2).reshape({tokens, 512}), p[4]);
  }

  [[nodiscard]] at::Tensor mlp(const at::Tensor& x) const {
    const at::Tensor h = at::rms_norm(x, {512}, p[0], 1e-5);
    return x + at::linear(at::silu(at::linear(h, p[1])) * at::linear(h, p[2]), p[3]);
  }

  [[nodiscard]] at::Tensor loss(const at::Tensor& x, const at::Tensor& targets) const {
    const at::Tensor logits = at::linear(at::rms_norm(x, {512}, p[0], 1e-5), p[1]);
    return at::cross_entropy_loss(logits.to(at::kFloat), targets.to(at::kLong));
  }
};

const std::vector<std::vector<std::int64_t>> attention_shapes{{512}, {512, 512}, {256, 512}, {256, 512}, {512, 512}};
const std::vector<std::vector<std::int64_t>> mlp_shapes{{512}, {1376, 512}, {1376, 512}, {512, 1376}};
const std::vector<std::vector<std::int64_t>> head_shapes{{512}, {32000, 512}};

void stage(State& state, StageKind kind, DType compute) {
  const auto type = compute == DType::fp32 ? at::kFloat : at::kBFloat16;
  const Flat flat(kind == StageKind::attention ? attention_shapes : (kind == StageKind::mlp ? mlp_shapes : head_shapes),
                  type);
  const Eager eager(flat, type);
  const nn::Microbatch m{.inputs = at::randint(0, 32000, {tokens}, at::kInt),
                         .targets = at::randint(0, 32000, {tokens}, at::kInt),
                         .batch = 1,
                         .seq_len = tokens,
                         .loss_scale = 1.0 / tokens};
  static const bool measured = [] {
    kernels::set_gemm_choice(kernels::measure_gemm());
    return true;
  }();
  state.SetLabel((measured ? "gemm " : "") + to_text(kernels::gemm_choice()));
  const auto ours = nn::make_stage(kind, sizes(), tokens, compute, 0);
  const at::Tensor x = at::randn({tokens, 512}).to(type), d_y = at::randn({tokens, 512}).to(type);
  const at::Tensor leaf = x.clone().requires_grad_();
  double flops = kind == StageKind::attention ? 3.5 * 4 * tokens * tokens * 512 / 2 : 0.0;
  for (const auto& p : flat.parameters) flops += p.dim() == 2 ? 6.0 * static_cast<double>(tokens * p.numel()) : 0.0;
  bench::compare(
      state, flops, "GFLOPs",
      [&] {
        nn::Saved saved;
        (void)ours->forward(x, flat.parameters, m, nn::Mode::train, saved);
        benchmark::DoNotOptimize(ours->backward(kind == StageKind::head ? at::Tensor() : d_y, flat.parameters,
                                                flat.grads, m, std::move(saved)));
      },
      [&] {
        if (kind == StageKind::head) return eager.loss(leaf, m.targets).backward();
        (kind == StageKind::attention ? eager.attention(leaf) : eager.mlp(leaf)).backward(d_y);
      });
}

const bool registered = [] {
  device::install_allocator();
  for (const auto compute : {DType::fp32, DType::bf16}) {
    for (const auto& [kind, name] :
         {std::pair{StageKind::attention, "attention"}, {StageKind::mlp, "mlp"}, {StageKind::head, "head"}}) {
      benchmark::RegisterBenchmark((std::string(name) + "/" + std::string(to_text(compute))).c_str(), stage, kind,
                                   compute)
          ->UseManualTime()
          ->MinTime(1);
    }
  }
  return true;
}();

}  // namespace
}  // namespace trireme::nn_bench
