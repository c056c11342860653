// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/buffer.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "trireme/base/error.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::device {
namespace {

Bytes sharded(Space space = Space::device) { return memory_use()[space].current[Category::parameters_sharded]; }

TEST(Buffer, IsZeroedAndOfItsExactSize) {
  install_allocator();
  for (const std::int64_t elements : {1, 1000, 300'000, 3'000'000}) {
    const Bytes before = sharded();
    const Bytes reserved = memory_use().reserved;
    const at::Tensor fp32 = buffer(Category::parameters_sharded, elements, DType::fp32);
    EXPECT_EQ(sharded() - before, Bytes{4 * elements});
    EXPECT_LE((memory_use().reserved - reserved).value, 4 * elements + 8192);
    EXPECT_EQ(fp32.scalar_type(), at::kFloat);
    EXPECT_EQ(fp32.sizes(), at::IntArrayRef({elements}));
    EXPECT_EQ(fp32.count_nonzero().item<std::int64_t>(), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fp32.data_ptr()) % 64, 0U);
  }
  const Bytes before = sharded(Space::host);
  const at::Tensor bf16 = buffer(Category::parameters_sharded, 1001, DType::bf16, Space::host);
  EXPECT_EQ(sharded(Space::host) - before, Bytes{2002});
  EXPECT_EQ(bf16.scalar_type(), at::kBFloat16);
}

TEST(Buffer, GoesBackToTheSystemAtOnce) {
  for (const std::int64_t elements : {1000, 3'000'000}) {
    const MemoryUse before = memory_use();
    buffer(Category::parameters_sharded, elements, DType::fp32).reset();
    EXPECT_EQ(memory_use().reserved, before.reserved);
    EXPECT_EQ(memory_use().cached, before.cached);
  }
}

TEST(Buffer, OfNothingIsATensorOfNothing) {
  const Bytes before = sharded();
  const at::Tensor nothing = buffer(Category::parameters_sharded, 0, DType::fp32);
  EXPECT_EQ(nothing.numel(), 0);
  EXPECT_EQ(sharded(), before);
  EXPECT_EQ(view(nothing, 0, {0, 7}).sizes(), at::IntArrayRef({0, 7}));
}

TEST(Buffer, IsChargedToItsOwnCategoryInAnyScope) {
  const ChargeTo scope(Category::activations);
  const Bytes before = sharded();
  const at::Tensor held = buffer(Category::parameters_sharded, 10, DType::fp32);
  EXPECT_EQ(sharded() - before, Bytes{40});
}

TEST(View, SharesTheBuffersMemory) {
  const at::Tensor flat = buffer(Category::parameters_sharded, 100, DType::fp32);
  at::Tensor weight = view(flat, 64, {4, 9});
  weight.fill_(3);
  EXPECT_EQ(flat.data_ptr<float>() + 64, weight.data_ptr<float>());
  EXPECT_EQ(flat.sum().item<float>(), 3 * 36);
  EXPECT_EQ(flat.data_ptr<float>()[63], 0);
  EXPECT_EQ(flat.data_ptr<float>()[99], 3);
  EXPECT_TRUE(weight.is_contiguous());
  EXPECT_EQ(weight.mm(at::ones({9, 1})).sum().item<float>(), 108);
}

TEST(View, CountsFromItsBufferWhenThatIsAViewToo) {
  const at::Tensor flat = buffer(Category::parameters_sharded, 100, DType::bf16);
  const at::Tensor part = view(flat, 10, {50});
  EXPECT_EQ(view(part, 5, {2, 3}).data_ptr<at::BFloat16>(), flat.data_ptr<at::BFloat16>() + 15);
}

TEST(View, KeepsTheBufferCharged) {
  const Bytes before = sharded();
  at::Tensor part = view(buffer(Category::parameters_sharded, 100, DType::fp32), 0, {1});
  EXPECT_EQ(sharded() - before, Bytes{400});
  part.reset();
  EXPECT_EQ(sharded(), before);
}

TEST(View, BeyondTheBufferIsABug) {
  const at::Tensor flat = buffer(Category::parameters_sharded, 100, DType::fp32);
  EXPECT_THROW(view(flat, 60, {41}), BugError);
  EXPECT_THROW(view(flat, -1, {1}), BugError);
  EXPECT_THROW(view(view(flat, 0, {10, 10}), 0, {1}), BugError);
}

TEST(ChargeToTensor, MovesTheWholeAllocationAndDischargesFromThere) {
  const Bytes before = sharded();
  const Bytes activations = memory_use()[Space::device].current[Category::activations];
  at::Tensor flat = buffer(Category::parameters_sharded, 100, DType::fp32);
  charge_to(view(flat, 10, {5}), {Category::activations});
  EXPECT_EQ(sharded(), before);
  EXPECT_EQ(memory_use()[Space::device].current[Category::activations] - activations, Bytes{400});
  flat.reset();
  EXPECT_EQ(memory_use()[Space::device].current[Category::activations], activations);
}

TEST(ChargeToTensor, MovesThePeaksSplitWhenTheTotalIsHighest) {
  reset_peaks();
  const at::Tensor flat = buffer(Category::workspace, 100, DType::fp32);
  charge_to(flat, {Category::activations});
  const SpaceUse use = memory_use()[Space::device];
  EXPECT_EQ(use.at_peak.bytes, use.current.bytes);
  EXPECT_EQ(use.at_peak.sum(), use.peak_total);
}

TEST(ChargeToTensor, LeavesBorrowedMemoryAndNoTensorAlone) {
  charge_to(at::Tensor{}, {Category::activations});
  float borrowed[4] = {};
  const Bytes activations = memory_use()[Space::device].current[Category::activations];
  charge_to(at::from_blob(borrowed, {4}), {Category::activations});
  EXPECT_EQ(memory_use()[Space::device].current[Category::activations], activations);
}

}  // namespace
}  // namespace trireme::device
