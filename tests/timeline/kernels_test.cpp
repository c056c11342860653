// SPDX-License-Identifier: Apache-2.0
#include "trireme/timeline/kernels.hpp"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::timeline {
namespace {

/// CPU events of libtorch's profiler replace a GPU's kernels: names and times are handled alike.
TEST(KernelRecording, HasTimesOnTheClockOfTheLanes) {
  using std::chrono::milliseconds;
  const at::Tensor x = at::ones({96, 96});
  for (int again = 0; again < 2; ++again) {
    KernelRecording recording(/*gpu=*/false);
    const auto before = Clock::now();
    (void)at::mm(x, x);
    const auto after = Clock::now();
    const std::vector<Kernel> kernels = recording.end();
    const auto product =
        std::find_if(kernels.begin(), kernels.end(), [](const Kernel& k) { return k.name == "aten::mm"; });
    ASSERT_NE(product, kernels.end());
    EXPECT_LT(product->begin, product->end);
    // The two clocks are compared when the recording ends: adjustments between then and now are far below that.
    EXPECT_GT(product->begin, before - milliseconds(20));
    EXPECT_LT(product->end, after + milliseconds(20));
  }
}

TEST(KernelRecording, HoldsNothingWhereNoGpuRan) {
  KernelRecording recording;
  const at::Tensor x = at::ones({8, 8});
  (void)at::mm(x, x);
  EXPECT_TRUE(recording.end().empty());
}

}  // namespace
}  // namespace trireme::timeline
