// SPDX-License-Identifier: Apache-2.0
//
// Our collectives against MPI's own and against memcpy, in the same run, so that only ratios are compared:
//
//   mpirun -n 2 --bind-to none build/comm_bench
//
// Columns: milliseconds of one call (best of interleaved repetitions; the slowest rank), GB/s of the whole buffer,
// and our rate as a multiple of MPI's own collective and of memcpy.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <vector>

#include "bench/ranks.hpp"
#include "trireme/comm/collectives.hpp"
#include "trireme/comm/groups.hpp"

namespace trireme::comm_bench {
namespace {

using namespace trireme::comm;
using bench::best;
using bench::timed;
using bench::world;
using mesh::Group;
using schedule::Lane;

// Times ours, MPI's own and memcpy in turn, so that whatever else the machine does hits all of them.
void compare(benchmark::State& state, std::int64_t whole_bytes, const std::function<void()>& ours,
             const std::function<void()>& mpis_own, const std::function<void()>& copy) {
  std::vector<double> our_seconds;
  std::vector<double> mpi_seconds;
  std::vector<double> copy_seconds;
  ours();
  mpis_own();
  copy();
  for (auto _ : state) {
    our_seconds.push_back(timed(ours));
    state.SetIterationTime(our_seconds.back());
    mpi_seconds.push_back(timed(mpis_own));
    copy_seconds.push_back(timed(copy));
  }
  const double seconds = best(our_seconds);
  state.counters["ms"] = 1e3 * seconds;
  state.counters["GB/s"] = 1e-9 * static_cast<double>(whole_bytes) / seconds;
  state.counters["x_mpi"] = best(mpi_seconds) / seconds;
  state.counters["x_memcpy"] = best(copy_seconds) / seconds;
}

void reduce_scatter(benchmark::State& state, TransportChoice choice, DType wire) {
  const std::int64_t elements = state.range(0) * 1'000'000 / 4 / world().size();
  const auto collectives = make_collectives(world(), Group::shard, Lane::reduce, {}, choice);
  const std::vector<float> whole(static_cast<std::size_t>(elements * world().size()), 1.0F);
  std::vector<float> shard(static_cast<std::size_t>(elements));
  std::vector<float> copied(whole.size());
  compare(
      state, 4 * elements * world().size(),
      [&] { collectives->reduce_scatter(whole.data(), shard.data(), elements, wire, false); },
      [&] {
        MPI_Reduce_scatter_block(whole.data(), shard.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                                 world().handle());
      },
      [&] { std::memcpy(copied.data(), whole.data(), whole.size() * 4); });
}

void all_gather(benchmark::State& state, TransportChoice choice) {
  const std::int64_t elements = state.range(0) * 1'000'000 / 4 / world().size();
  const auto collectives = make_collectives(world(), Group::shard, Lane::gather, {}, choice);
  std::vector<float> whole(static_cast<std::size_t>(elements * world().size()), 1.0F);
  float* const shard = whole.data() + elements * world().rank();  // in place, as the executor gathers
  std::vector<float> copied(whole.size());
  compare(
      state, 4 * elements * world().size(),
      [&] { collectives->all_gather(shard, whole.data(), elements, DType::fp32); },
      [&] {
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole.data(), static_cast<int>(elements), MPI_FLOAT,
                      world().handle());
      },
      [&] { std::memcpy(copied.data(), whole.data(), whole.size() * 4); });
}

// Megabytes of the whole buffer.
void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(8)->Arg(128)->Iterations(15)->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(reduce_scatter, shared_memory, TransportChoice::shared_memory, DType::fp32)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_scatter, shared_memory_bf16_wire, TransportChoice::shared_memory, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_scatter, mpi, TransportChoice::mpi, DType::fp32)->Apply(sizes);
BENCHMARK_CAPTURE(reduce_scatter, mpi_bf16_wire, TransportChoice::mpi, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(all_gather, shared_memory, TransportChoice::shared_memory)->Apply(sizes);
BENCHMARK_CAPTURE(all_gather, mpi, TransportChoice::mpi)->Apply(sizes);

// A small collective, as for a loss or a norm: latency.
void sum_of_four(benchmark::State& state, TransportChoice choice) {
  const auto collectives = make_collectives(world(), Group::dp, Lane::compute, {}, choice);
  std::vector<double> values(4, 1.0);
  compare(
      state, 32, [&] { collectives->sum(values); },
      [&] { MPI_Allreduce(MPI_IN_PLACE, values.data(), 4, MPI_DOUBLE, MPI_SUM, world().handle()); }, [] {});
}

BENCHMARK_CAPTURE(sum_of_four, shared_memory, TransportChoice::shared_memory)
    ->Iterations(200)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sum_of_four, mpi, TransportChoice::mpi)
    ->Iterations(200)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace trireme::comm_bench
