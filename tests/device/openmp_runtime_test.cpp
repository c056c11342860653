// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <Kokkos_Core.hpp>
#include <atomic>
#include <fstream>
#include <set>
#include <string>

namespace {

std::set<std::string> loaded_libraries(const std::string& part) {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto path = line.find('/');
    if (path != std::string::npos && line.find(part, path) != std::string::npos) paths.insert(line.substr(path));
  }
  return paths;
}

TEST(OpenMpRuntime, IsOneForLibtorchAndKokkos) {
  EXPECT_EQ(at::mm(at::ones({64, 64}), at::ones({64, 64})).sum().item<float>(), 64 * 64 * 64);
  EXPECT_EQ(loaded_libraries("/libgomp").size(), 1u) << testing::PrintToString(loaded_libraries("/libgomp"));
  EXPECT_TRUE(loaded_libraries("/libomp").empty());
  EXPECT_TRUE(loaded_libraries("/libiomp").empty());
}

TEST(OpenMpRuntime, GivesBothTheSameTeam) {
  const int threads = omp_get_max_threads();
  EXPECT_EQ(at::get_num_threads(), threads);
  EXPECT_EQ(Kokkos::DefaultHostExecutionSpace().concurrency(), threads);
}

// Without -fopenmp at::parallel_for in our own code would silently run on one thread.
TEST(OpenMpRuntime, IsUsedByParallelForInOurCode) {
  if (at::get_num_threads() < 2) GTEST_SKIP() << "one thread";
  std::atomic<int> chunks = 0;
  at::parallel_for(0, 1000, 1, [&](std::int64_t, std::int64_t) { ++chunks; });
  EXPECT_EQ(chunks, at::get_num_threads());
}

}  // namespace
