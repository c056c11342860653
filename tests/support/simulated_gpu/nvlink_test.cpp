// SPDX-License-Identifier: Apache-2.0
//
// src/device/cuda/nvlink.cpp with a simulated NVML, which it loads by the driver's name.
#include "device/cuda/nvlink.hpp"

#include <gtest/gtest.h>

#include "nvml/nvml.hpp"

namespace trireme::device::cuda {
namespace {

using simulated_gpu::nvml;
using simulated_gpu::NvmlGpu;

struct Nvlink : testing::Test {
  void SetUp() override { nvml = {}; }
  void TearDown() override { EXPECT_EQ(nvml.open, 0) << "every initialization is ended"; }
  static NvmlGpu& gpu(const std::string& address) { return nvml.gpus[address]; }
};

TEST_F(Nvlink, IsEmptyWithoutADriverWithoutTheGpuAndWithoutLinks) {
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "");
  gpu("0000:1b:00.0").links[0] = {.remote_type = 2};
  nvml.init_error = 9;  // NVML_ERROR_DRIVER_NOT_LOADED
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "");
  nvml.init_error = 0;
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "switch");
  gpu("0000:43:00.0");
  EXPECT_EQ(nvlink_domain("0000:43:00.0"), "");
}

TEST_F(Nvlink, IsTheSwitchOfANodeByItsFirstActiveLink) {
  gpu("0000:1b:00.0").links = {{0, {.active = false, .remote_type = 0}}, {17, {.remote_type = 2}}};
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "switch");
  gpu("0000:1b:00.0").links[17].active = false;
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "");
}

TEST_F(Nvlink, IsTheFabricWhereOneIsComplete) {
  NvmlGpu& one = gpu("0000:1b:00.0");
  one.links[0] = {.remote_type = 2};
  one.fabric_error = 0;
  one.fabric_state = 3;
  one.clique = 7;
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "switch") << "a fabric of zeros is a single node's";
  one.cluster = std::string(15, '\x01') + '\xff';
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "fabric 010101010101010101010101010101ff/7");
  one.fabric_state = 2;  // in progress
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "switch");
  one.fabric_state = 3;
  one.fabric_status = 999;
  EXPECT_EQ(nvlink_domain("0000:1b:00.0"), "switch");
}

TEST_F(Nvlink, IsTheLeastAddressOfThoseThatAreJoinedWithoutASwitch) {
  gpu("00000000:1B:00.0").links[0] = {.remote = "00000000:43:00.0"};
  gpu("00000000:43:00.0").links[2] = {.remote = "00000000:1B:00.0"};
  for (const bool typed : {true, false}) {
    for (auto& [address, each] : nvml.gpus) each.knows_remote_types = typed;
    EXPECT_EQ(nvlink_domain("00000000:1B:00.0"), "00000000:1B:00.0");
    EXPECT_EQ(nvlink_domain("00000000:43:00.0"), "00000000:1B:00.0");
  }
  gpu("00000000:43:00.0").links[2].remote = "";
  EXPECT_EQ(nvlink_domain("00000000:43:00.0"), "");
}

}  // namespace
}  // namespace trireme::device::cuda
