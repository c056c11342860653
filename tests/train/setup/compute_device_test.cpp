// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/compute_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme::train {
namespace {

using config::Backend;
using config::DeviceType;
using testing::HasSubstr;

device::GpuProbe gpus(int count) {
  device::GpuProbe probe;
  for (int i = 0; i < count; ++i)
    probe.gpus.push_back({.index = i, .name = "NVIDIA H200", .major = 9, .bus = std::to_string(i)});
  return probe;
}

config::RunConfig wants(DeviceType type, Backend backend = Backend::automatic) {
  config::RunConfig config;
  config.device.type = type;
  config.comm.backend = backend;
  return config;
}

std::string refusal(const config::RunConfig& config, const device::GpuProbe& probe, const RankGpus& ranks) {
  try {
    (void)decide_device(config, probe, ranks);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "";
}

TEST(PeakFlops, IsThatOfTheRunFileOrOfTheGpu) {
  config::RunConfig config;
  ComputeDevice device;
  config.precision.compute = DType::bf16;
  EXPECT_EQ(peak_flops(config, device), std::nullopt);
  device.gpu = device::Gpu{.name = "NVIDIA H200"};
  EXPECT_EQ(peak_flops(config, device), 989e12);
  config.precision.compute = DType::fp32;
  EXPECT_EQ(peak_flops(config, device), std::nullopt);
  config.metrics.peak_flops = 1e12;
  EXPECT_EQ(peak_flops(config, device), 1e12);
}

TEST(GpuOf, IsThePlaceOnTheNodeAmongTheVisibleOnes) {
  EXPECT_EQ(gpu_of(4, 2), 2);
  EXPECT_EQ(gpu_of(1, 3), 0) << "Slurm shows each rank its own";
  EXPECT_EQ(gpu_of(2, 5), 1) << "shared";
}

TEST(DecideDevice, TakesTheGpuOfTheRanksPlaceAndNccl) {
  for (const DeviceType type : {DeviceType::automatic, DeviceType::cuda}) {
    const ComputeDevice chosen = decide_device(wants(type), gpus(4), {.node_rank = 3});
    EXPECT_EQ(chosen.device, c10::Device(c10::DeviceType::CUDA, 3));
    EXPECT_EQ(chosen.link, comm::DeviceLink::nccl);
    EXPECT_EQ(chosen.remark, "");
  }
}

TEST(DecideDevice, RefusesFp8ThatTheGpuCannotMultiply) {
  config::RunConfig config = wants(DeviceType::cuda);
  device::GpuProbe probe = gpus(1);
  config.precision.fp8 = Fp8::rowwise;
  EXPECT_EQ(refusal(config, probe, {}), "");
  config.precision.fp8 = Fp8::mx;
  EXPECT_THAT(refusal(config, probe, {}),
              HasSubstr("precision.fp8 = \"mx\" requires a GPU of compute capability 10.0 (Blackwell), but NVIDIA H200 "
                        "has 9.0. Set precision.fp8 = \"rowwise\", or precision.fp8 = \"none\"."));
  probe.gpus[0] = {.name = "NVIDIA A100", .major = 8, .bus = "0"};
  EXPECT_THAT(refusal(config, probe, {}), HasSubstr("has 8.0. Set precision.fp8 = \"none\"."));
  for (const Fp8 recipe : {Fp8::rowwise, Fp8::tensorwise}) {
    config.precision.fp8 = recipe;
    EXPECT_THAT(refusal(config, probe, {}), HasSubstr("compute capability 8.9 (Ada, Hopper), but NVIDIA A100 has 8.0"));
  }
  config.device.type = DeviceType::cpu;
  EXPECT_EQ(refusal(config, probe, {}), "") << "emulated";
}

TEST(DecideDevice, LeavesGpusAloneWhereTheCpuIsAskedFor) {
  EXPECT_TRUE(decide_device(wants(DeviceType::cpu), gpus(4), {}).device.is_cpu());
}

TEST(DecideDevice, StagesTensorsOverMpiWhereItIsAskedToOrRanksShareGpus) {
  EXPECT_EQ(decide_device(wants(DeviceType::cuda, Backend::mpi), gpus(4), {}).link, comm::DeviceLink::staged);
  const ComputeDevice shared = decide_device(wants(DeviceType::cuda), gpus(1), {.node_rank = 3, .shared = true});
  EXPECT_EQ(shared.device.index(), 0);
  EXPECT_EQ(shared.link, comm::DeviceLink::staged);
  EXPECT_THAT(shared.remark, HasSubstr("ranks share GPUs"));
  EXPECT_THAT(refusal(wants(DeviceType::cuda, Backend::nccl), gpus(1), {.node_rank = 3, .shared = true}),
              HasSubstr("comm.backend = \"mpi\""));
}

TEST(DecideDevice, TakesNcclBetweenRanksOfOneGpuWhereNcclAcceptsThemAndTheRunFileRequestsIt) {
  const RankGpus accepted{.node_rank = 1, .shared = true, .nccl_accepts = true};
  const ComputeDevice chosen = decide_device(wants(DeviceType::cuda, Backend::nccl), gpus(1), accepted);
  EXPECT_EQ(chosen.link, comm::DeviceLink::nccl);
  EXPECT_THAT(chosen.remark, HasSubstr("ranks share GPUs and use NCCL"));
  EXPECT_EQ(decide_device(wants(DeviceType::cuda), gpus(1), accepted).link, comm::DeviceLink::staged) << "auto";
  EXPECT_THAT(refusal(wants(DeviceType::cuda, Backend::nccl), gpus(1), {.node_rank = 1, .shared = true}),
              HasSubstr("NCCL_HOSTID"));
}

TEST(GpuSharing, IsAcceptedWhereEveryRankOfAGpuHasASeparateHostId) {
  using comm::GpuUser;
  const auto sharing = [](const std::vector<GpuUser>& users, int nccl = 22809) {
    const comm::GpuSharing found = comm::gpu_sharing(users, nccl);
    return std::pair{found.shared, found.accepted};
  };
  const std::pair apart{false, true}, accepted{true, true}, refused{true, false};
  EXPECT_EQ(sharing({{.bus = "a"}, {.bus = "b"}}), apart);
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "1"}, {.bus = "b", .host_id = "1"}}), apart);
  EXPECT_EQ(sharing({{.bus = "a"}, {.bus = "a"}}), refused);
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "0"}, {.bus = "a", .host_id = "1"}}), accepted);
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "0"}, {.bus = "a", .host_id = "0"}}), refused) << "equal ids";
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "0"}, {.bus = "a"}}), refused) << "a rank without";
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "0"}, {.bus = "b"}, {.bus = "a", .host_id = "1"}}), accepted);
  EXPECT_EQ(sharing({{.bus = "a", .host_id = "0"}, {.bus = "b"}, {.bus = "a", .host_id = "1"}, {.bus = "b"}}), refused)
      << "one GPU of two";
  const GpuUser on_purpose{.bus = "a", .multi_rank = true};
  EXPECT_EQ(sharing({on_purpose, on_purpose}), refused) << "NCCL 2.28 has no NCCL_MULTI_RANK_GPU_ENABLE";
  EXPECT_EQ(sharing({on_purpose, on_purpose}, 23003), accepted);
  EXPECT_EQ(sharing({on_purpose, {.bus = "a"}}, 23003), refused);
}

TEST(DecideDevice, RefusesMoreExpertsThanRoutersOnGpusHaveRoomFor) {
  config::RunConfig config = wants(DeviceType::automatic);
  config.model.experts = 1025;
  EXPECT_THAT(refusal(config, gpus(1), {}),
              HasSubstr("model.experts = 1025: the router on a GPU has room for at most 1024"));
  config.model.experts = 1024;
  EXPECT_EQ(refusal(config, gpus(1), {}), "");
}

TEST(DecideDevice, RefusesALimitOfNcclWhereTensorsGoAnotherWay) {
  config::RunConfig limited = wants(DeviceType::automatic);
  limited.comm.nccl_max_ctas = 8;
  EXPECT_EQ(decide_device(limited, gpus(4), {}).link, comm::DeviceLink::nccl);
  EXPECT_THAT(refusal(limited, gpus(1), {.node_rank = 3, .shared = true}), HasSubstr("ranks share GPUs"));
  EXPECT_THAT(refusal(limited, gpus(0), {.any_without = true, .why_without = "no driver"}),
              HasSubstr("comm.nccl_max_ctas = 8 is for NCCL, but this job trains on CPUs"));
}

TEST(DecideDevice, NeedsAGpuOnEveryRank) {
  const RankGpus without{.any_without = true, .why_without = "no driver"};
  EXPECT_TRUE(decide_device(wants(DeviceType::automatic), gpus(0), without).device.is_cpu());
  EXPECT_EQ(decide_device(wants(DeviceType::automatic), gpus(0), without).remark, "");
  EXPECT_THAT(decide_device(wants(DeviceType::automatic), gpus(2), without).remark, HasSubstr("no driver"));
  EXPECT_THAT(refusal(wants(DeviceType::cuda), gpus(2), without), HasSubstr("no driver"));
  const std::string nccl = refusal(wants(DeviceType::automatic, Backend::nccl), gpus(0), without);
  for (const char* part : {"all_gather", "group shard", "device type cpu", "comm.backend = \"auto\""})
    EXPECT_THAT(nccl, HasSubstr(part));
}

}  // namespace
}  // namespace trireme::train
