// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/doctor/calibrate.hpp"
#include "trireme/kernels/attention.hpp"
#include "trireme/kernels/gemm.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/planner/time/costs.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t product_rows = 256;
constexpr double seconds_a_size = 0.35;

/// Rounds as the file prints it, so that no rate in it is above the peak.
double four_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  return std::round(value / unit) * unit;
}

/// The three products of a layer of hidden x hidden, for several layers in turn, so that weights are read from memory
/// as in a step.
double product_flops_per_second(const mpi::Communicator& world, std::int64_t hidden, at::ScalarType type) {
  constexpr std::int64_t beyond_caches = std::int64_t{32} << 20, most_layers = 64;
  const std::int64_t layers = std::clamp<std::int64_t>(beyond_caches / (hidden * hidden * 4), 2, most_layers);
  std::vector<at::Tensor> weights, gradients;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    weights.push_back(at::randn({hidden, hidden}).to(type));
    gradients.push_back(at::empty({hidden, hidden}, at::kFloat));
  }
  const at::Tensor x = at::randn({product_rows, hidden}).to(type);
  std::size_t layer = 0;
  const double seconds = typical_seconds(seconds_a_size, [&] {
    const at::Tensor y = kernels::linear(x, weights[layer]);
    (void)kernels::linear_backward_input(y, weights[layer]);
    kernels::linear_backward_weight(y, x, {.tensor = gradients[layer], .accumulate = false});
    layer = (layer + 1) % weights.size();
  });
  const double flops = 3 * 2.0 * static_cast<double>(product_rows * hidden * hidden);
  return flops / mean_over_ranks(world, seconds);
}

/// Forward and backward of causal attention in fp32, as the planner counts its FLOPs.
double attention_flops_per_second(const mpi::Communicator& world, std::int64_t seq_len) {
  constexpr std::int64_t heads = 4, head_dim = 64;
  const kernels::AttentionShape shape{
      .batch = 1, .seq_len = seq_len, .heads = heads, .kv_heads = heads, .head_dim = head_dim, .window = 0};
  const auto wide = [&] { return at::randn({seq_len, heads * head_dim}); };
  const at::Tensor q = wide(), k = wide(), v = wide(), d_out = wide();
  const at::Tensor out = at::empty_like(q), d_q = at::empty_like(q), d_k = at::empty_like(q), d_v = at::empty_like(q);
  const at::Tensor logsumexp = at::empty({1, heads, seq_len}, at::kFloat);
  const double seconds = typical_seconds(2 * seconds_a_size, [&] {
    kernels::causal_attention(q, k, v, shape, out, logsumexp);
    kernels::causal_attention_backward(d_out, q, k, v, out, logsumexp, shape, d_q, d_k, d_v);
  });
  const auto length = static_cast<double>(seq_len);
  const double flops = 2 * length * length * static_cast<double>(heads * head_dim) * (1 + 2.5 / 0.8);
  return flops / mean_over_ranks(world, seconds);
}

/// Bytes of an update, as the planner counts them, per second.
double update_bytes_per_second(const mpi::Communicator& world) {
  constexpr std::size_t elements = std::size_t{4} << 20;
  std::vector<float> gradient(elements, 1e-3F), master(elements, 1.0F), first(elements), second(elements);
  const std::vector<optim::UpdateRange> all{{.elements = {0, static_cast<std::int64_t>(elements)}}};
  const optim::AdamWStep step{.lr = 1e-4};
  const double seconds = typical_seconds(2 * seconds_a_size, [&] {
    optim::adamw(step, all, std::span<const float>(gradient), {master, first, second});
  });
  return planner::Kernels{}.update * static_cast<double>(elements) / mean_over_ranks(world, seconds);
}

double copied_bytes_per_second(const mpi::Communicator& world) {
  constexpr std::size_t bytes = std::size_t{32} << 20;
  const std::vector<char> from(bytes, 'a');
  std::vector<char> to(bytes);
  const double seconds = typical_seconds(seconds_a_size, [&] { std::memcpy(to.data(), from.data(), bytes); });
  return static_cast<double>(bytes) / mean_over_ranks(world, seconds);
}

}  // namespace

void measure_kernels(planner::Machine& machine, const mpi::Communicator& world) {
  std::vector<planner::ProductRate> fp32;
  double ratios = 0;
  machine.products.clear();
  machine.peak_flops = 0;
  for (const std::int64_t hidden : {64, 128, 256, 512, 1024, 2048}) {
    const double flops = 2.0 * static_cast<double>(product_rows * hidden * hidden);
    fp32.push_back({flops, product_flops_per_second(world, hidden, at::kFloat)});
    ratios += std::log(fp32.back().rate / product_flops_per_second(world, hidden, at::kBFloat16));
  }
  // The table is of bf16, and fp32's factor one number: the mean, so that fp32's own rates are exact.
  machine.fp32_factor = std::clamp(std::exp(ratios / static_cast<double>(fp32.size())), 1e-3, 10.0);
  for (const planner::ProductRate& rate : fp32) {
    machine.products.push_back({rate.flops, four_digits(rate.rate / machine.fp32_factor)});
    machine.peak_flops = std::max(machine.peak_flops, machine.products.back().rate);
  }
  constexpr double head_dim = 64;
  double attention = 0;
  for (const std::int64_t seq_len : {128, 256, 512}) attention += std::log(attention_flops_per_second(world, seq_len));
  machine.attention_flops =
      std::exp(attention / 3) * (head_dim + planner::attention_half) / head_dim / machine.fp32_factor;
  machine.host_memory_bandwidth = update_bytes_per_second(world);
  machine.host_bandwidth = copied_bytes_per_second(world);
}

}  // namespace trireme::cli
