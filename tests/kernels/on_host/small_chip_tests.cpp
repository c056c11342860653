// SPDX-License-Identifier: Apache-2.0
//
// Kernels on a GPU with less shared memory than any that is sold: they do without, and give the same bits. What CUDA
// and the kernel themselves take of it leaves less than nothing then.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/cuda/launch.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::device::cuda {

extern Chip emulated;  // cuda_on_host.cpp

}  // namespace trireme::device::cuda

namespace trireme::kernels::cuda {
namespace {

/// Logits become gradients; the losses are returned.
std::vector<double> losses_with(int shared_bytes, std::int64_t width, std::vector<float>& logits) {
  constexpr std::int64_t rows = 5;
  logits.resize(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 4 * std::sin(static_cast<float>(i));
  const std::vector<std::int32_t> targets{0, 17, -1, static_cast<std::int32_t>(width - 1), 5};
  std::vector<double> losses(static_cast<std::size_t>(3 * rows));
  const int usual = std::exchange(device::cuda::emulated.shared_bytes, shared_bytes);
  EXPECT_TRUE(cross_entropy_in_shared<float>({.data = logits.data(), .rows = rows, .width = width, .stride = width},
                                             targets.data(), 1, 0, losses.data()));
  device::cuda::emulated.shared_bytes = usual;
  return losses;
}

TEST(SmallChip, CrossEntropyWithoutRoomInSharedMemoryGivesTheSameBits) {
  for (const std::int64_t width : {12'000, 24'000, 40'000}) {  // four blocks, two and one on a multiprocessor
    std::vector<float> expected, found;
    const std::vector<double> losses = losses_with(124 << 10, width, expected);
    for (const int shared_bytes : {2 << 10, 8 << 10, 24 << 10}) {
      EXPECT_EQ(losses_with(shared_bytes, width, found), losses) << width << " in " << shared_bytes;
      EXPECT_EQ(found, expected) << width << " in " << shared_bytes;
    }
  }
}

}  // namespace
}  // namespace trireme::kernels::cuda
