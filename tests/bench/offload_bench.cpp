// SPDX-License-Identifier: Apache-2.0
//
// Cost of an offloaded step: one rank, one compute thread, accumulation 8, and a free core for the host's work. The
// same model with everything on the device (that is, in memory of a separate account) and with memory.offload, in
// turns, so that other load affects both. Steps follow each other without synchronization, as in training:
//
//   OMP_NUM_THREADS=1 mpirun -n 1 --bind-to none build/offload_bench
//
// cost = offloaded / plain - 1, of the median seconds of a step; best_cost of the least seconds.
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

#include "bench/batch.hpp"
#include "bench/ranks.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::offload_bench {
namespace {

using bench::batch;
using bench::best;
using bench::median;
using bench::world;

config::RunConfig run(config::Offload offload, DType compute) {
  config::RunConfig config;
  config.model.vocab_size = 4096;
  config.model.hidden_size = 512;
  config.model.intermediate_size = 1408;
  config.model.layers = 6;
  config.model.heads = 8;
  config.model.kv_heads = 8;
  config.model.head_dim = 64;
  config.data.seq_len = 256;
  config.precision.compute = compute;
  config.batch = {.global = 8, .micro = 1};
  config.memory.offload = offload;
  config.train.steps = 1;
  return config;
}

/// A job of which a few steps in a row are timed at once.
struct Runner {
  static constexpr int in_a_row = 3;
  Runner(config::Offload offload, DType compute)
      : job(run(offload, compute), world(), {.lane_threads = true}), tokens(batch(job)) {
    job.store().fill(store::initial_values(1));
  }
  double step() {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < in_a_row; ++i) (void)job.step(tokens, 1e-4, i + 1 == in_a_row);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / in_a_row);
    return seconds.back();
  }
  train::Job job;
  data::StepBatch tokens;
  std::vector<double> seconds;
};

void offloaded(benchmark::State& state, config::Offload what, DType compute) {
  device::install_allocator();
  Runner plain(config::Offload::none, compute), offload(what, compute);
  plain.step();
  offload.step();
  plain.seconds.clear();
  offload.seconds.clear();
  for (auto _ : state) {
    plain.step();
    state.SetIterationTime(offload.step());
  }
  const executor::HostWork work = offload.job.executor().host_work();
  state.counters["plain_ms"] = 1e3 * median(plain.seconds);
  state.counters["offloaded_ms"] = 1e3 * median(offload.seconds);
  state.counters["cost"] = median(offload.seconds) / median(plain.seconds) - 1;
  state.counters["best_cost"] = best(offload.seconds) / best(plain.seconds) - 1;
  state.counters["update_GBps"] = static_cast<double>(work.bytes.value) / work.seconds / 1e9;
}

void optimizer_fp32(benchmark::State& state) { offloaded(state, config::Offload::optimizer, DType::fp32); }
void optimizer_bf16(benchmark::State& state) { offloaded(state, config::Offload::optimizer, DType::bf16); }
void parameters_fp32(benchmark::State& state) { offloaded(state, config::Offload::parameters, DType::fp32); }

BENCHMARK(optimizer_fp32)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);
BENCHMARK(optimizer_bf16)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);
BENCHMARK(parameters_fp32)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(9);

}  // namespace
}  // namespace trireme::offload_bench
