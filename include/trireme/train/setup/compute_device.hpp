// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/device_transports.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/communicator.hpp"

/// Selects the compute device: `device.type` and `comm.backend` of the run file, resolved on the actual ranks.
namespace trireme::train {

struct ComputeDevice {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  comm::DeviceLink link = comm::DeviceLink::staged;
  std::optional<device::Gpu> gpu;  ///< this rank's
  std::string remark;              ///< a note on a choice that was not requested; empty: none
};

/// Result of every rank, in one word each.
struct RankGpus {
  int node_rank = 0;          ///< among this node's ranks
  bool shared = false;        ///< some GPU has several ranks
  bool nccl_accepts = false;  ///< shared, and NCCL accepts that (comm::gpu_sharing)
  bool any_without = false;   ///< a rank of the job sees no GPU
  std::string why_without;    ///< that rank's reason
};

/// Peak FLOP/s of one rank, for mfu: `metrics.peak_flops`, or its GPU's known peak in bf16.
[[nodiscard]] std::optional<double> peak_flops(const config::RunConfig& config, const ComputeDevice& device);

/// This rank's place among the GPUs that it sees: the one of its place on the node. With one visible GPU that one,
/// which is how Slurm binds ranks (--gpus-per-task, --gpu-bind).
[[nodiscard]] int gpu_of(int gpus, int node_rank);

/// The device that the run file selects. Throws EnvironmentError if `device.type = "cuda"` or
/// `comm.backend = "nccl"` cannot be.
[[nodiscard]] ComputeDevice decide_device(const config::RunConfig& config, const device::GpuProbe& probe,
                                          const RankGpus& ranks);

/// Looks for GPUs, decides, and makes this rank's GPU the one where it computes; with `run.deterministic` NCCL and
/// cuBLAS sum in one order, and with `memory.budget` this rank's allocations end there. The same kind on
/// all ranks. Collective over `world`.
[[nodiscard]] ComputeDevice choose_device(const config::RunConfig& config, const mpi::Communicator& world);

}  // namespace trireme::train
