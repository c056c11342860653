// SPDX-License-Identifier: Apache-2.0
//
// Speed-up of the caching allocator over libtorch's: argument 0 is libtorch's, 1 is ours.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>

#include "trireme/device/allocator.hpp"

namespace trireme::allocator_bench {
namespace {

void choose(const benchmark::State& state) {
  trireme::device::install_allocator();
  if (state.range(0) == 0) c10::SetAllocator(c10::DeviceType::CPU, c10::GetDefaultCPUAllocator(), 255);
}

void small_tensor(benchmark::State& state) {
  choose(state);
  for (auto _ : state) benchmark::DoNotOptimize(at::empty({1000}, at::kFloat));
}

void touched_tensor_of_64_MiB(benchmark::State& state) {
  choose(state);
  for (auto _ : state) benchmark::DoNotOptimize(at::ones({std::int64_t{16} << 20}, at::kFloat));
}

/// The head of the speed bar: 512 tokens, hidden 512, vocabulary 32,000.
void head_gemm(benchmark::State& state) {
  choose(state);
  const at::Tensor hidden = at::ones({512, 512}), weight = at::ones({32'000, 512});
  for (auto _ : state) benchmark::DoNotOptimize(at::mm(hidden, weight.t()));
}

void head_log_softmax(benchmark::State& state) {
  choose(state);
  const at::Tensor logits = at::ones({512, 32'000});
  for (auto _ : state) benchmark::DoNotOptimize(at::log_softmax(logits, 1));
}

BENCHMARK(small_tensor)->Arg(0)->Arg(1);
BENCHMARK(touched_tensor_of_64_MiB)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(head_gemm)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(head_log_softmax)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace trireme::allocator_bench
