// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/gpus.hpp"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "trireme/device/buffer.hpp"

namespace trireme::device {
namespace {

TEST(PeakBf16Flops, EqualsTheDataSheet) {
  EXPECT_EQ(peak_bf16_flops("NVIDIA H200"), 989e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(peak_bf16_flops("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(peak_bf16_flops("Quadro K620"), std::nullopt);
}

TEST(FractionOf, NeverAllowsLessThanWasAskedFor) {
  const Bytes all{150'121'545'728};  // an H200
  for (const std::int64_t most :
       {std::int64_t{1}, std::int64_t{40} << 30, std::int64_t{42'949'672'961}, all.value - 1}) {
    const double part = fraction_of(Bytes{most}, all);
    const auto allowed = static_cast<std::int64_t>(part * static_cast<double>(all.value));
    EXPECT_GE(allowed, most);
    EXPECT_LE(allowed, most + 16) << "and hardly more";
    EXPECT_LE(part, 1.0);
  }
  EXPECT_EQ(fraction_of(Bytes{2 * all.value}, all), 1.0) << "what the GPU does not have bounds nothing";
}

TEST(ProbeGpus, ReportsWhyThereIsNone) {
  const GpuProbe probe = probe_gpus();
  EXPECT_EQ(probe.gpus.empty(), !probe.reason.empty());
  EXPECT_TRUE(built_for_gpus() || probe.gpus.empty());
}

TEST(OnHost, IsTheTensorItselfThere) {
  const at::Tensor tensor = at::empty({3});
  EXPECT_TRUE(on_host(tensor).is_same(tensor));
}

}  // namespace
}  // namespace trireme::device
