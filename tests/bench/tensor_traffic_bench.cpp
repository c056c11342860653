// SPDX-License-Identifier: Apache-2.0
//
// Bytes per token on the tensor axis, counted while a step runs, compared with the formula: in each layer and
// microbatch forward 2 all-gathers and 2 reduce-scatters, backward 2 and 2 and 2 gathers again, each (t - 1)/t of the
// residual stream (Korthikanti et al. 2022, and the second gathers); without sequence parallelism 4 all-reduces, each
// of twice that. All ranks share the layers:
//
//   OMP_NUM_THREADS=1 mpirun -n 4 --bind-to none build/tensor_traffic_bench
//
// layer: what one layer more adds; embedding_and_loss: what is there without layers: the embedding's sum, its
// gradient's gather, the same around the head, and 12 bytes a token of each rank's part of the softmax; norms:
// gradients of the norms' weights, once a step. counted == formula or the program ends with 1.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "bench/batch.hpp"
#include "bench/ranks.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::tensor_traffic_bench {
namespace {

using bench::batch;
using bench::world;

constexpr std::int64_t seq_len = 64, micro = 2, accumulation = 3, hidden = 256;

config::RunConfig run(const char* architecture, std::int64_t layers, bool sequence_parallel, DType compute) {
  config::RunConfig config;
  config.model = {.architecture = architecture,
                  .vocab_size = 1000,
                  .hidden_size = hidden,
                  .intermediate_size = 512,
                  .layers = layers,
                  .heads = 8};
  if (config.model.architecture == "gpt2") config.model.positions = seq_len;
  config.mesh = {.replicate = 1, .shard = 1, .tensor = world().size()};
  if (world().size() > 1) config.mesh.sequence_parallel = sequence_parallel;
  config.data.seq_len = seq_len;
  config.batch = {.global = micro * accumulation, .micro = micro};
  config.precision.compute = compute;
  config.train.steps = 1;
  return config;
}

/// Bytes that one rank sent in a step: the residual stream and the softmax, and the sums of replicated norm gradients.
struct Sent {
  std::int64_t activations = 0, norms = 0;
};

Sent sent(const config::RunConfig& config) {
  train::Job job(config, world(), {.lane_threads = true});
  job.store().fill(store::initial_values(1));
  (void)job.step(batch(job), 1e-4, true);
  Sent found;
  const comm::TrafficTable moved = job.step_traffic();
  const bool sequence_parallel = config.mesh.sequence_parallel.value_or(false);
  for (const auto& [operation, traffic] : moved.at("tensor"))
    (operation == "all_reduce" && sequence_parallel ? found.norms : found.activations) += traffic.bytes.value;
  return found;
}

void bytes_per_token(benchmark::State& state, const char* architecture, bool sequence_parallel, DType compute) {
  device::install_allocator();
  if (world().size() == 1) {
    state.SkipWithError("needs several ranks");
    return;
  }
  constexpr double tokens = static_cast<double>(micro * seq_len * accumulation);
  Sent two, four;
  for (auto _ : state) {
    two = sent(run(architecture, 2, sequence_parallel, compute));
    four = sent(run(architecture, 4, sequence_parallel, compute));
  }
  const double t = world().size();
  const double each = (t - 1) / t * hidden * static_cast<double>(size_of(compute));
  const double layer = static_cast<double>(four.activations - two.activations) / 2 / tokens;
  const double formula = (sequence_parallel ? 10 : 8) * each;
  const double rest = static_cast<double>(two.activations) / tokens - 2 * layer;
  const double rest_formula = 4 * each + 12 * (t - 1);
  state.counters["layer"] = layer;
  state.counters["formula"] = formula;
  state.counters["embedding_and_loss"] = rest;
  state.counters["their_formula"] = rest_formula;
  state.counters["norms"] = static_cast<double>(two.norms) / tokens;
  if (layer == formula && rest == rest_formula) return;
  std::fprintf(stderr, "%s: counted %g and %g, by the formula %g and %g\n", architecture, layer, rest, formula,
               rest_formula);
  mpi::check(MPI_Abort(MPI_COMM_WORLD, 1), "end the bench");
}

BENCHMARK_CAPTURE(bytes_per_token, llama_fp32, "llama", true, DType::fp32)->Iterations(1);
BENCHMARK_CAPTURE(bytes_per_token, llama_bf16, "llama", true, DType::bf16)->Iterations(1);
BENCHMARK_CAPTURE(bytes_per_token, llama_fp32_without_sequence_parallelism, "llama", false, DType::fp32)->Iterations(1);
BENCHMARK_CAPTURE(bytes_per_token, gpt2_fp32, "gpt2", true, DType::fp32)->Iterations(1);
BENCHMARK_CAPTURE(bytes_per_token, gpt2_fp32_without_sequence_parallelism, "gpt2", false, DType::fp32)->Iterations(1);

}  // namespace
}  // namespace trireme::tensor_traffic_bench
