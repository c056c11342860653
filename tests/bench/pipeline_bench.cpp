// SPDX-License-Identifier: Apache-2.0
//
// A pipeline's step compared with a simulation of its measured op times: ranks of one compute thread, one per core.
//
//   OMP_NUM_THREADS=1 mpirun -n 4 --bind-to core build/pipeline_bench
//
// The time of an op is the median of its spans over steps; that of a message, the shortest of all of its rank, since
// the others also wait for their peer. off = measured / simulated - 1, of the median step: time that ranks lose in
// addition to their waits for each other, which the simulation includes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "bench/batch.hpp"
#include "bench/ranks.hpp"
#include "trireme/device/allocator.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/simulate.hpp"
#include "trireme/schedule/needs.hpp"

namespace trireme::pipeline_bench {
namespace {

using bench::batch;
using bench::world;
using config::PipelineKind;

config::RunConfig run(PipelineKind kind) {
  config::RunConfig config;
  config.model = {.vocab_size = 2048, .hidden_size = 384, .intermediate_size = 1024, .heads = 6, .kv_heads = 6};
  config.model.head_dim = 64;
  config.model.layers = 4 * world().size();
  config.data.seq_len = 256;
  config.precision.compute = DType::fp32;
  config.batch = {.global = 4 * world().size(), .micro = 1};
  config.train.steps = 1;
  config.mesh.pipeline = world().size();
  config.pipeline.schedule = kind;
  config.sync = {.policy = config::SyncPolicy::deferred, .reshard_after_forward = 1, .reshard_after_backward = false};
  return config;
}

double seconds(timeline::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

/// Time of every op of this rank, from the spans of many steps.
std::vector<planner::Cost> costs_of(const std::vector<timeline::Span>& spans, const schedule::Schedule& schedule) {
  std::vector<std::vector<double>> took(schedule.ops.size());
  for (const timeline::Span& span : spans)
    took[static_cast<std::size_t>(span.op)].push_back(seconds(span.end - span.begin));
  double message = 1;
  for (std::size_t op = 0; op < took.size(); ++op)
    if (std::holds_alternative<schedule::Receive>(schedule.ops[op])) message = std::min(message, bench::best(took[op]));
  std::vector<planner::Cost> costs;
  for (std::size_t op = 0; op < took.size(); ++op) {
    const bool sends = std::holds_alternative<schedule::Send>(schedule.ops[op]);
    const bool receives = std::holds_alternative<schedule::Receive>(schedule.ops[op]);
    const bool meets = std::holds_alternative<schedule::ClipNorm>(schedule.ops[op]);  // also waits for the others
    costs.push_back({.seconds = sends      ? message
                                : receives ? 0.0
                                : meets    ? bench::best(took[op])
                                           : bench::median(took[op])});
  }
  return costs;
}

/// Costs of all ranks, on the first one.
std::vector<std::vector<planner::Cost>> gathered(const std::vector<planner::Cost>& mine) {
  int count = static_cast<int>(mine.size());
  std::vector<int> counts(static_cast<std::size_t>(world().size())), begins(counts.size());
  MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, world().handle());
  std::vector<double> own, all(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0)));
  for (const planner::Cost& cost : mine) own.push_back(cost.seconds);
  std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), 0);
  MPI_Allgatherv(own.data(), count, MPI_DOUBLE, all.data(), counts.data(), begins.data(), MPI_DOUBLE, world().handle());
  std::vector<std::vector<planner::Cost>> ranks;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    ranks.emplace_back();
    for (int i = 0; i < counts[rank]; ++i)
      ranks.back().push_back({.seconds = all[static_cast<std::size_t>(begins[rank] + i)]});
  }
  return ranks;
}

void beside_its_simulation(benchmark::State& state, PipelineKind kind) {
  device::install_allocator();
  const config::RunConfig config = run(kind);
  train::Job job(config, world(), {.record_timeline = true});
  job.store().fill(store::initial_values(1));
  const data::StepBatch tokens = batch(job);
  for (int i = 0; i < 5; ++i) (void)job.step(tokens, 1e-4, false);
  (void)job.step(tokens, 1e-4, true);
  (void)job.executor().timeline().take();
  std::vector<double> measured;
  for (auto _ : state) {
    const double took = bench::timed([&] { (void)job.step(tokens, 1e-4, true); });
    measured.push_back(took);
    state.SetIterationTime(took);
  }
  const planner::PipelinePlan plan = planner::build_pipeline_plan(config, job.resolved());
  const auto costs = gathered(costs_of(job.executor().timeline().take(), job.schedule()));
  std::vector<std::vector<schedule::Need>> needs;
  for (std::size_t rank = 0; rank < costs.size(); ++rank)
    needs.push_back(schedule::needs(plan.steps[rank], plan.parts[rank].model));
  std::vector<planner::RankStep> ranks;
  for (std::size_t rank = 0; rank < costs.size(); ++rank) ranks.push_back({plan.steps[rank], needs[rank], costs[rank]});
  const double simulated = planner::simulate(ranks, 0).front().seconds;
  state.counters["measured_ms"] = 1e3 * bench::median(measured);
  state.counters["simulated_ms"] = 1e3 * simulated;
  state.counters["off"] = bench::median(measured) / simulated - 1;
  state.counters["lane_threads"] = job.lane_threads() ? 1 : 0;
}

void one_f_one_b(benchmark::State& state) { beside_its_simulation(state, PipelineKind::one_f_one_b); }
void interleaved(benchmark::State& state) { beside_its_simulation(state, PipelineKind::interleaved); }
void zb_h1(benchmark::State& state) { beside_its_simulation(state, PipelineKind::zb_h1); }

BENCHMARK(one_f_one_b)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);
BENCHMARK(interleaved)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);
BENCHMARK(zb_h1)->UseManualTime()->Unit(benchmark::kMillisecond)->Iterations(30);

}  // namespace
}  // namespace trireme::pipeline_bench
