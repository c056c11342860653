// SPDX-License-Identifier: Apache-2.0
//
// The emulator itself: barriers hold every thread, exchanges in a warp give what the others gave, and a kernel that not
// every thread of which reaches a barrier ends the process.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

namespace trireme::test {
namespace {

constexpr unsigned threads = 96;

TEST(Emulator, NoThreadPassesABarrierBeforeAllArrive) {
  std::array<int, 3> arrived{};
  int early = 0, runs = 0;
  run_grid(dim3(2, 2), dim3(threads), 0, [&] {
    for (std::size_t round = 0; round < arrived.size(); ++round) {
      ++arrived[round];
      __syncthreads();
      early += arrived[round] % static_cast<int>(threads) != 0 ? 1 : 0;
      __syncthreads();
    }
    ++runs;
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(runs, 4 * static_cast<int>(threads));
}

TEST(Emulator, ExchangesOneAfterTheOtherKeepTheirValues) {
  std::array<std::int64_t, threads> sums{};
  run_grid(dim3(1), dim3(threads), 0, [&] {
    for (int round = 1; round <= 3; ++round) {
      std::int64_t sum = round * static_cast<int>(threadIdx.x);
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, step);
      sums[threadIdx.x] += sum;
    }
  });
  for (unsigned t = 0; t < threads; ++t) {
    const unsigned first = t / 32 * 32;
    EXPECT_EQ(sums[t], (1 + 2 + 3) * (32 * std::int64_t{first} + 31 * 32 / 2)) << t;
  }
}

TEST(Emulator, ThreadsThatEndEarlyBlockNoOther) {
  int ended = 0;
  run_grid(dim3(3), dim3(threads), 0, [&] {
    if (threadIdx.x / 32 == 1) (void)__shfl_xor_sync(0xffffffffU, 1, 1);
    ++ended;
  });
  EXPECT_EQ(ended, 3 * static_cast<int>(threads));
}

TEST(Emulator, CopiesAreThereWhenTheirThreadHasWaitedForThem) {
  std::array<uint4, 2> from{uint4{1, 2, 3, 4}, uint4{5, 6, 7, 8}};
  int early = 0, late = 0;
  run_grid(dim3(2), dim3(threads), threads * 2 * sizeof(uint4), [&] {
    auto* const mine = static_cast<uint4*>(emulated_dynamic_shared()) + 2 * threadIdx.x;
    for (std::size_t i = 0; i < 2; ++i) {
      emulated_copy(mine + i, &from[i], sizeof(uint4));
      emulated_end_copies();
    }
    early += mine[0].x == 1 || mine[1].x == 5 ? 1 : 0;
    emulated_wait_for_copies(1);
    early += mine[1].x == 5 ? 1 : 0;
    late += mine[0].w == 4 ? 0 : 1;
    emulated_wait_for_copies(0);
    late += mine[1].w == 8 ? 0 : 1;
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(late, 0);
}

TEST(EmulatorDeathTest, SharedMemoryIsAskedForAbove48KiB) {
  const auto nothing = [] {};
  EXPECT_DEATH(run_grid(dim3(1), dim3(threads), 48 << 10, nothing), "more than the kernel may have");
  allow_shared(60 << 10);
  run_grid(dim3(1), dim3(threads), 60 << 10, nothing);
  EXPECT_DEATH(run_grid(dim3(1), dim3(threads), 60 << 10, nothing), "more than the kernel may have");
}

TEST(EmulatorDeathTest, ABarrierThatNotEveryThreadReachesEndsTheProcess) {
  const auto all_but = [](unsigned who) {
    run_grid(dim3(1), dim3(threads), 0, [=] {
      if (threadIdx.x != who) __syncthreads();
    });
  };
  EXPECT_DEATH(all_but(0), "not every thread reaches");
  EXPECT_DEATH(all_but(40), "not every thread reaches");
  EXPECT_DEATH(all_but(threads - 1), "not every thread reaches");
  EXPECT_DEATH(run_grid(dim3(1), dim3(threads), 0,
                        [] {
                          if (threadIdx.x == 33) return __syncthreads();
                          (void)__shfl_xor_sync(0xffffffffU, 1, 1);
                        }),
               "not every thread reaches");
}

}  // namespace
}  // namespace trireme::test
