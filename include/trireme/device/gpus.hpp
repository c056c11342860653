// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/units.hpp"

/// The GPUs of this node, as CUDA shows them to this process.
namespace trireme::device {

struct Gpu {
  int index = 0;  ///< CUDA's ordinal: counts the visible ones only (CUDA_VISIBLE_DEVICES, Slurm's --gpus-per-task)
  std::string name;
  Bytes memory;
  int major = 0;  ///< compute capability, such as 9.0
  int minor = 0;
  int multiprocessors = 0;
  std::string bus;  ///< PCI address: equal on two ranks that see the same GPU
  /// Equal for GPUs of a node that reach each other over NVLink, and of nodes where it begins with "fabric"; empty
  /// without NVLink, or where the driver's NVML reports none.
  std::string nvlink{};
};

/// The GPUs found, and the reason if there are none.
struct GpuProbe {
  std::vector<Gpu> gpus;
  std::string reason;
};

/// Peak of dense bf16 products in the vendor's table, FLOP/s; nothing for an unknown GPU.
[[nodiscard]] std::optional<double> peak_bf16_flops(std::string_view name);

/// True if this program was built for GPUs (TRIREME_CUDA=ON).
[[nodiscard]] bool built_for_gpus();

/// Makes GPU `index` the one where this process computes: libtorch's allocator there charges its blocks to the calling
/// thread's category, and the host's memory counts apart from it. Before the first tensor on it. Throws
/// EnvironmentError if it cannot be used.
[[nodiscard]] c10::Device use_gpu(int index);

/// Limits libtorch's allocator on `gpu`, which has `all` bytes, to `most` bytes including its cache; beyond that an
/// allocation throws EnvironmentError with the table by category. Not included: memory of the CUDA context (about 0.5
/// GiB) and NCCL's buffers.
void cap_gpu_memory(c10::Device gpu, Bytes most, Bytes all);
/// The fraction `most` / `all`, from 0 to 1, rounded such that truncating `part * all` is at least `most`.
[[nodiscard]] double fraction_of(Bytes most, Bytes all);

/// Queries the GPUs without creating a context, so that a rank uses no memory on other ranks' GPUs.
[[nodiscard]] GpuProbe probe_gpus();

}  // namespace trireme::device
