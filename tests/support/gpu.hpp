// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "support/skips_here.hpp"

/// The tests of device kernels. They are built twice: for a GPU, where they are skipped when there is none, and against
/// the emulator in tests/kernels/on_host, where the same kernels run on host tensors.
namespace trireme::test {

/// Whether the kernels can run here.
[[nodiscard]] bool kernels_run_here();
/// Whether they run on a GPU: what only libtorch does there is skipped elsewhere.
[[nodiscard]] bool on_gpu();
/// Lets the emulator make asynchronous copies when they begin; else when they are waited for. A GPU does as it likes.
void make_copies_at_once(bool at_once);
/// A copy where the kernels find it, contiguous. The emulator's copy ends at a page that may not be touched.
[[nodiscard]] at::Tensor to_kernels(const at::Tensor& tensor);

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels_run_here()) GTEST_SKIP() << not_here << "no GPU";
  }
};

}  // namespace trireme::test
