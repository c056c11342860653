// SPDX-License-Identifier: Apache-2.0
//
// Fraction of the communication that the executor hides. Two ranks of one compute thread train the same model over a
// paced transport: real MPI, completion withheld without using CPU until size / bandwidth has passed. The bandwidth is
// set so that communication takes a third of compute. Three ways in turn, so that other load on the machine affects all
// of them: without pacing (compute), paced on lanes (hidden communication takes no time), paced on the compute thread
// (nothing is hidden):
//
//   OMP_NUM_THREADS=1 mpirun -n 2 --bind-to none build/overlap_bench
//
// hidden = 1 - (lanes - compute) / (inline - compute), of each way's fastest step: other load on the machine only adds
// time. With tensor parallelism a layer waits for its forward exchanges and for its output's gradient: only the sums of
// the input gradients and, with sequence parallelism, the second gathers can be hidden: 4 of a layer's 10 exchanges,
// without it 2 of 4. `hideable` is their share of all; hidden_of_hideable is the result.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <vector>

#include "bench/batch.hpp"
#include "bench/ranks.hpp"
#include "support/test_transports.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/model/activations.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::overlap_bench {
namespace {

using bench::batch;
using bench::world;

config::RunConfig run(config::SyncPolicy policy) {
  config::RunConfig config;
  config.model.vocab_size = 2048;
  config.model.hidden_size = 384;
  config.model.intermediate_size = 1024;
  config.model.layers = 8;
  config.model.heads = 6;
  config.model.kv_heads = 6;
  config.model.head_dim = 64;
  config.data.seq_len = 256;
  config.precision.compute = DType::fp32;
  config.sync.policy = policy;
  config.batch = {.global = 2 * world().size(), .micro = 1};
  config.train.steps = 1;
  return config;
}

/// A job that is stepped with the others in turn.
struct Runner {
  Runner(const config::RunConfig& config, bool lanes, double bytes_per_second)
      : job(config, world(), options(lanes, bytes_per_second)), tokens(batch(job)) {
    job.store().fill(store::initial_values(1));
  }
  static train::JobOptions options(bool lanes, double bytes_per_second) {
    train::JobOptions options{.lane_threads = lanes, .transport = comm::TransportChoice::mpi};
    if (bytes_per_second > 0)
      options.wrap_transport = [=](std::unique_ptr<comm::Transport> transport) {
        return comm::paced(std::move(transport), {.bytes_per_second = bytes_per_second});
      };
    return options;
  }
  double step() {
    job.control().barrier();
    const auto begin = std::chrono::steady_clock::now();
    (void)job.step(tokens, 1e-4, true);
    job.control().barrier();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return seconds.back();
  }
  train::Job job;
  data::StepBatch tokens;
  std::vector<double> seconds;
};

std::int64_t bytes_of_a_step(const train::Job& job) {
  std::int64_t bytes = 0;
  const auto replay_options = planner::replay_options_of(job.config(), job.resolved());
  for (const auto& [group, operations] :
       planner::replay_traffic(job.schedule(), job.model(), job.layout(), replay_options))
    for (const auto& [operation, moved] : operations) bytes += moved.bytes.value;
  return bytes;
}

/// The share of the communication under which there is something to compute. All of it where parameters are sharded;
/// on the tensor axis by the number of exchanges, which are of one size but for the loss's few bytes.
double hideable(const schedule::Schedule& schedule, const model::Model& model) {
  int exchanges = 0;
  int under_compute = 0;
  for (const schedule::Op& op : schedule.ops) {
    const auto* const exchanged = std::get_if<schedule::Exchanged>(&op);
    if (exchanged == nullptr || schedule::lane_of(op) != schedule::Lane::tensor ||
        exchanged->kind == schedule::Exchange::gather_vocabulary)
      continue;
    ++exchanges;
    const auto& stage = model[exchanged->block].stages[static_cast<std::size_t>(exchanged->segment.value)];
    const bool sums = exchanged->kind == schedule::Exchange::scatter_sequence ||
                      exchanged->kind == schedule::Exchange::all_reduce_activation;
    if (exchanged->phase == schedule::Phase::again ||
        (sums && exchanged->phase == schedule::Phase::backward && model::is_branch(stage.kind)))
      ++under_compute;
  }
  return exchanges == 0 ? 1 : static_cast<double>(under_compute) / exchanges;
}

void hidden(benchmark::State& state, const config::RunConfig& config) {
  device::install_allocator();
  Runner compute(config, false, 0);
  for (int i = 0; i < 5; ++i) compute.step();
  double third = bench::best(compute.seconds) / 3;
  MPI_Bcast(&third, 1, MPI_DOUBLE, 0, world().handle());
  const double pace = static_cast<double>(bytes_of_a_step(compute.job)) / third;
  Runner lanes(config, true, pace);
  Runner inlined(config, false, pace);
  lanes.step();
  inlined.step();
  compute.seconds.clear();
  lanes.seconds.clear();
  inlined.seconds.clear();
  for (auto _ : state) {
    compute.step();
    state.SetIterationTime(lanes.step());
    inlined.step();
  }
  const double alone = bench::best(compute.seconds);
  const double hidden = 1 - (bench::best(lanes.seconds) - alone) / (bench::best(inlined.seconds) - alone);
  const double share = hideable(compute.job.schedule(), compute.job.model());
  state.counters["compute_ms"] = 1e3 * alone;
  state.counters["lanes_ms"] = 1e3 * bench::best(lanes.seconds);
  state.counters["inline_ms"] = 1e3 * bench::best(inlined.seconds);
  state.counters["link_MB/s"] = pace / 1e6;
  state.counters["hidden"] = hidden;
  state.counters["hideable"] = share;
  state.counters["hidden_of_hideable"] = hidden / share;
}

/// All ranks share each layer. A short step: what is exchanged in each is little.
config::RunConfig tensor_run(bool sequence_parallel) {
  config::RunConfig config = run(config::SyncPolicy::deferred);
  config.model.layers = 4;
  config.batch = {.global = 1, .micro = 1};
  config.mesh = {.replicate = 1, .shard = 1, .tensor = world().size(), .sequence_parallel = sequence_parallel};
  return config;
}

void immediate(benchmark::State& state) { hidden(state, run(config::SyncPolicy::immediate)); }
void deferred(benchmark::State& state) { hidden(state, run(config::SyncPolicy::deferred)); }
void tensor_with_sequence_parallelism(benchmark::State& state) { hidden(state, tensor_run(true)); }
void tensor(benchmark::State& state) { hidden(state, tensor_run(false)); }

BENCHMARK(immediate)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(15);
BENCHMARK(deferred)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(15);
BENCHMARK(tensor_with_sequence_parallelism)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(40);
BENCHMARK(tensor)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(40);

}  // namespace
}  // namespace trireme::overlap_bench
