// SPDX-License-Identifier: Apache-2.0
#include "cli/init/gpu_machines.hpp"

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::cli::gpu_machines_test {
namespace {

Bytes gib(std::int64_t count) { return Bytes{count << 30}; }

TEST(ShippedMachineOf, IsThatOfTheGpu) {
  EXPECT_EQ(shipped_machine_of("NVIDIA H100 80GB HBM3", gib(79)), "h100");
  EXPECT_EQ(shipped_machine_of("NVIDIA H200", gib(140)), "h200");
  EXPECT_EQ(shipped_machine_of("NVIDIA GH200 480GB", gib(95)), "gh200");
  EXPECT_EQ(shipped_machine_of("NVIDIA B200", gib(178)), "b200");
  EXPECT_EQ(shipped_machine_of("NVIDIA GB200", gib(184)), "gb200");
  EXPECT_EQ(shipped_machine_of("NVIDIA GB300", gib(276)), "gb300");
  EXPECT_EQ(shipped_machine_of("NVIDIA A100-SXM4-80GB", gib(79)), "a100");
  EXPECT_EQ(shipped_machine_of("NVIDIA A100-SXM4-40GB", gib(39)), "a100-40gb");
}

TEST(ShippedMachineOf, NamesOneThatIsShippedWithThatMemory) {
  for (const auto& [gpu, memory] : {std::pair{"NVIDIA H100 80GB HBM3", 80}, {"NVIDIA A100-SXM4-40GB", 40}}) {
    const planner::Machine machine = planner::load_machine(shipped_machine_of(gpu, gib(memory)));
    EXPECT_FALSE(machine.gpus.empty());
    EXPECT_LE(machine.memory.value, gib(memory).value) << gpu;
    EXPECT_GE(machine.memory.value, gib(memory).value / 10 * 8) << gpu;
  }
}

TEST(ShippedMachineOf, GuessesNoOther) {
  for (const char* gpu : {"NVIDIA GeForce RTX 4090", "NVIDIA H20", "NVIDIA H800", "NVIDIA B200", "NVIDIA L40S",
                          "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA A100 80GB PCIe", "Tesla V100-SXM2-32GB", ""})
    try {
      ADD_FAILURE() << gpu << " was taken for " << shipped_machine_of(gpu, gib(80));
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("--machine"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(gpu), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace trireme::cli::gpu_machines_test
