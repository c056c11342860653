// SPDX-License-Identifier: Apache-2.0
//
// AdamW and the norm against plain loops over the same streams, and AdamW against what libtorch needs for the same:
// clip, fused AdamW, cast. Each iteration times both, in turns; `ratio` is the other's best time over ours (1: as
// fast), `GBps` our rate.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <benchmark/benchmark.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <vector>

#include "trireme/device/allocator.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/optim/adamw.hpp"
#include "trireme/optim/norm.hpp"

namespace trireme::optim_bench {
namespace {

using device::Category;

constexpr std::int64_t elements = std::int64_t{48} << 20;

/// CPU time of the process over its threads: the turns of other processes do not count.
double seconds(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return (now() - begin) / Kokkos::DefaultHostExecutionSpace().concurrency();
}

/// Times both in turns, so that a busy machine slows both alike.
void compare(benchmark::State& state, double bytes, const std::function<void()>& ours,
             const std::function<void()>& other) {
  std::vector<double> our_times, other_times;
  ours();
  other();
  for (auto _ : state) {
    other_times.push_back(seconds(other));
    our_times.push_back(seconds(ours));
    state.SetIterationTime(our_times.back());
  }
  const double our_best = std::ranges::min(our_times), other_best = std::ranges::min(other_times);
  state.counters["GBps"] = bytes / our_best * 1e-9;
  state.counters["ratio"] = other_best / our_best;
}

template <class Body>
void in_tiles(const Body& body) {
  constexpr std::int64_t tile = std::int64_t{1} << 15;
  using Policy = Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace, Kokkos::IndexType<std::int64_t>>;
  Kokkos::parallel_for(Policy(0, elements / tile), [&](std::int64_t t) { body(t * tile, (t + 1) * tile); });
}

/// Inputs and outputs of one update.
struct Shard {
  explicit Shard(DType gradient_type)
      : gradient{device::buffer(Category::gradients_sharded, elements, gradient_type)},
        master{device::buffer(Category::parameters_sharded, elements, DType::fp32)},
        first{device::buffer(Category::optimizer, elements, DType::fp32)},
        second{device::buffer(Category::optimizer, elements, DType::fp32)},
        compute{device::buffer(Category::parameters_sharded, elements, DType::bf16)} {
    gradient.fill_(1e-3);
    master.fill_(0.5);
    compute.fill_(0);
    first.fill_(0);
    second.fill_(0);
  }
  template <class Element>
  static std::span<Element> span(const at::Tensor& tensor) {
    return {tensor.data_ptr<Element>(), static_cast<std::size_t>(tensor.numel())};
  }
  [[nodiscard]] optim::AdamWState state() const {
    return {span<float>(master), span<float>(first), span<float>(second)};
  }
  [[nodiscard]] std::span<c10::BFloat16> copy() const { return span<c10::BFloat16>(compute); }

  at::Tensor gradient, master, first, second, compute;
};

/// `count` parameters of equal size, every other one under decay, a gap after each when there are several.
std::vector<optim::UpdateRange> parameters(std::int64_t count) {
  std::vector<optim::UpdateRange> ranges;
  const std::int64_t each = elements / count / 64 * 64;
  for (std::int64_t i = 0; i < count; ++i) {
    ranges.push_back({{i * each, (i + 1) * each - (count > 1 ? 7 : 0)}, i % 2 == 0 ? 0 : 1});
  }
  return ranges;
}

/// The same streams with next to no arithmetic.
template <class Gradient>
void plain_pass(const Gradient* gradient, const optim::AdamWState& state, c10::BFloat16* compute) {
  in_tiles([=, master = state.master.data(), first = state.m.data(), second = state.v.data()](std::int64_t begin,
                                                                                              std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) {
      float g = 0;
      if constexpr (std::is_same_v<Gradient, float>) {
        g = gradient[i];
      } else {
        g = static_cast<float>(gradient[i].x);
      }
      first[i] += g;
      second[i] += g;
      master[i] += g;
      if (compute != nullptr) compute[i].x = static_cast<std::uint16_t>(static_cast<std::int32_t>(master[i]));
    }
  });
}

template <class Gradient>
void adamw(benchmark::State& state) {
  const Shard shard(sizeof(Gradient) == 4 ? DType::fp32 : DType::bf16);
  const auto ranges = parameters(state.range(0));
  const auto copy = state.range(1) != 0 ? shard.copy() : std::span<c10::BFloat16>{};
  const std::span<const Gradient> gradient = Shard::span<Gradient>(shard.gradient);
  const optim::AdamWStep step{.lr = 1e-4, .weight_decay = {0.1, 0}, .count = 7, .gradient_factor = 0.5};
  const double bytes = static_cast<double>(elements) * (sizeof(Gradient) + 24.0 + (copy.empty() ? 0 : 2));
  compare(
      state, bytes, [&] { optim::adamw(step, ranges, gradient, shard.state(), copy); },
      [&] { plain_pass(gradient.data(), shard.state(), copy.data()); });
}

void norm(benchmark::State& state) {
  const at::Tensor gradient = device::buffer(Category::gradients_sharded, elements, DType::fp32).fill_(1e-3);
  const std::span<const float> values = Shard::span<float>(gradient);
  compare(
      state, 4.0 * elements, [&] { benchmark::DoNotOptimize(optim::sum_of_squares(values)); },
      [&] {
        in_tiles([&](std::int64_t begin, std::int64_t end) {
          std::uint32_t sum = 0;
          for (std::int64_t i = begin; i < end; ++i) sum += reinterpret_cast<const std::uint32_t*>(values.data())[i];
          benchmark::DoNotOptimize(sum);
        });
      });
}

/// Clip, update and cast by libtorch over `range(0)` tensors.
void adamw_against_libtorch(benchmark::State& state) {
  const Shard shard(DType::fp32);
  const auto ranges = parameters(state.range(0));
  std::vector<at::Tensor> gradients, masters, firsts, seconds, copies, counts;
  for (const optim::UpdateRange& range : ranges) {
    const auto part = [&](const at::Tensor& whole) {
      return device::view(whole, range.elements.begin, {range.elements.size()});
    };
    gradients.push_back(part(shard.gradient));
    masters.push_back(part(shard.master));
    firsts.push_back(part(shard.first));
    seconds.push_back(part(shard.second));
    copies.push_back(part(shard.compute));
    counts.push_back(at::full({}, 7.0));
  }
  const optim::AdamWStep step{.lr = 1e-4, .weight_decay = {0.1, 0}, .count = 7, .gradient_factor = 0.999};
  compare(
      state, elements * 30.0,
      [&] {
        optim::adamw(step, ranges, std::span<const float>(Shard::span<float>(shard.gradient)), shard.state(),
                     shard.copy());
      },
      [&] {
        for (at::Tensor& gradient : gradients) gradient.mul_(step.gradient_factor);
        at::_fused_adamw_(masters, gradients, firsts, seconds, {}, counts, step.lr, step.beta1, step.beta2,
                          step.weight_decay[0], step.eps,
                          /*amsgrad=*/false, /*maximize=*/false);
        for (std::size_t i = 0; i < copies.size(); ++i) copies[i].copy_(masters[i]);
      });
}

#define TRIREME_BENCH(...) BENCHMARK(__VA_ARGS__)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(25)
TRIREME_BENCH(adamw<float>)->ArgNames({"tensors", "copy"})->Args({1, 0})->Args({1, 1})->Args({2000, 1});
TRIREME_BENCH(adamw<c10::BFloat16>)->ArgNames({"tensors", "copy"})->Args({1, 1})->Args({2000, 1});
TRIREME_BENCH(norm);
TRIREME_BENCH(adamw_against_libtorch)->ArgName("tensors")->Arg(1)->Arg(2000);

}  // namespace
}  // namespace trireme::optim_bench
