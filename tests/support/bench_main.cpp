// SPDX-License-Identifier: Apache-2.0
//
// The main function of the benchmarks: google-benchmark with Kokkos up.
#include <benchmark/benchmark.h>

#include <Kokkos_Core.hpp>

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Kokkos::ScopeGuard kokkos(Kokkos::InitializationSettings().set_disable_warnings(true));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
