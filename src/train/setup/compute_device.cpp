// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/compute_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/names.hpp"
#include "trireme/kernels/experts.hpp"
#include "trireme/kernels/fp8_format.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::train {
namespace {

using config::Backend;
using config::DeviceType;

/// Features that are computed on the host only.
void refuse_without_device_kernel(const config::RunConfig& config) {
  if (config.model.experts > kernels::most_experts_on_gpu)
    throw EnvironmentError(fmt::format(
        "model.experts = {}: the router on a GPU has room for at most {}. Set device.type = \"cpu\", or fewer experts.",
        config.model.experts, kernels::most_experts_on_gpu));
}

void refuse_without_fp8(const config::RunConfig& config, const device::Gpu& gpu) {
  const Fp8 recipe = config.precision.fp8;
  const char* const needed = kernels::missing_fp8_capability(recipe, gpu.major, gpu.minor);
  if (needed == nullptr) return;
  throw EnvironmentError(
      fmt::format("precision.fp8 = \"{}\" requires a GPU of compute capability {}, but {} has {}.{}. Set "
                  "{}precision.fp8 = \"none\".",
                  config::to_text(recipe), needed, gpu.name, gpu.major, gpu.minor,
                  recipe == Fp8::mx && kernels::missing_fp8_capability(Fp8::rowwise, gpu.major, gpu.minor) == nullptr
                      ? "precision.fp8 = \"rowwise\", or "
                      : ""));
}

/// Libraries read these variables when they start; values set by the user are kept.
void sum_in_one_order() {
  for (const auto& [name, value] :
       {std::pair{"CUBLAS_WORKSPACE_CONFIG", ":4096:8"}, {"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple"}})
    (void)setenv(name, value, /*overwrite=*/0);
}

}  // namespace

std::optional<double> peak_flops(const config::RunConfig& config, const ComputeDevice& device) {
  if (config.metrics.peak_flops) return config.metrics.peak_flops;
  if (!device.gpu || config.precision.compute != DType::bf16) return std::nullopt;
  return device::peak_bf16_flops(device.gpu->name);
}

int gpu_of(int gpus, int node_rank) { return node_rank % gpus; }

namespace {

ComputeDevice decided(const config::RunConfig& config, const device::GpuProbe& probe, const RankGpus& ranks) {
  const bool wants_gpu = config.device.type == DeviceType::cuda;
  const bool wants_nccl = config.comm.backend == Backend::nccl;
  if (config.device.type == DeviceType::cpu || ranks.any_without) {
    if (wants_gpu)
      throw EnvironmentError(
          fmt::format("device.type = \"cuda\", but {}. Start the job where every rank may use a GPU, or "
                      "set device.type = \"cpu\".",
                      ranks.why_without));
    if (wants_nccl)
      throw EnvironmentError(fmt::format(
          "comm.backend = \"nccl\" moves tensors on GPUs only, and without a GPU those of every group lie in host "
          "memory: the first is all_gather over the group shard, of device type cpu ({}). Set comm.backend = "
          "\"auto\".",
          ranks.why_without));
    if (config.device.type == DeviceType::cpu || probe.gpus.empty()) return {};
    return {.remark =
                fmt::format("device.type = auto: training on CPUs although GPUs were found: {}", ranks.why_without)};
  }
  refuse_without_device_kernel(config);
  const device::Gpu& gpu =
      probe.gpus.at(static_cast<std::size_t>(gpu_of(static_cast<int>(probe.gpus.size()), ranks.node_rank)));
  refuse_without_fp8(config, gpu);
  ComputeDevice chosen{.device = {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(gpu.index)}, .gpu = gpu};
  if (config.comm.backend == Backend::mpi) return chosen;
  if (!ranks.shared) {
    chosen.link = comm::DeviceLink::nccl;
  } else if (wants_nccl) {
    if (!ranks.nccl_accepts)
      throw EnvironmentError(fmt::format(
          "comm.backend = \"nccl\" requires one GPU per rank, but several ranks of a node use {} at {}. "
          "Start one rank per GPU, or set comm.backend = \"mpi\". For tests NCCL accepts ranks that share a "
          "GPU where NCCL_HOSTID is set, to a different value on each rank.",
          gpu.name, gpu.bus));
    chosen.link = comm::DeviceLink::nccl;
    chosen.remark = "ranks share GPUs and use NCCL: this is for tests, a collective takes milliseconds";
  } else {
    chosen.remark = "ranks share GPUs: tensors are staged through host memory and sent over MPI";
  }
  return chosen;
}

}  // namespace

ComputeDevice decide_device(const config::RunConfig& config, const device::GpuProbe& probe, const RankGpus& ranks) {
  ComputeDevice chosen = decided(config, probe, ranks);
  const std::string set = config::nccl_setting(config.comm);
  if (!set.empty() && chosen.link != comm::DeviceLink::nccl)
    throw EnvironmentError(fmt::format("comm.{} is for NCCL, but {}. Leave it out.", set,
                                       chosen.gpu ? chosen.remark : "this job trains on CPUs"));
  return chosen;
}

ComputeDevice choose_device(const config::RunConfig& config, const mpi::Communicator& world) {
  if (config.device.type == DeviceType::cpu) return {};
  const device::GpuProbe probe = device::probe_gpus();
  RankGpus ranks{.node_rank = world.node().rank()};
  try {
    mpi::collective_try(world, "find the GPUs", [&] {
      if (!probe.reason.empty()) throw EnvironmentError(probe.reason);
    });
  } catch (const mpi::CollectiveError& error) {
    ranks.why_without = error.what();
    ranks.any_without = true;
  }
  if (!ranks.any_without) {
    const int taken = gpu_of(static_cast<int>(probe.gpus.size()), ranks.node_rank);
    const comm::GpuSharing sharing = comm::gpu_sharing(world, probe.gpus[static_cast<std::size_t>(taken)].bus);
    ranks.shared = sharing.shared;
    ranks.nccl_accepts = sharing.accepted;
  }
  ComputeDevice chosen = decide_device(config, probe, ranks);
  if (!chosen.gpu) return chosen;
  if (config.run.deterministic) sum_in_one_order();
  // More streams than the 8 queues that CUDA makes by default wait for each other. Read when the context is made.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  chosen.device = device::use_gpu(chosen.gpu->index);
  if (config.memory.budget) device::cap_gpu_memory(chosen.device, *config.memory.budget, chosen.gpu->memory);
  return chosen;
}

}  // namespace trireme::train
