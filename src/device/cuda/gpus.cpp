// SPDX-License-Identifier: Apache-2.0
#include "trireme/device/gpus.hpp"

#include <ATen/Context.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "device/cuda/charging.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/nvlink.hpp"
#include "device/ledger.hpp"
#include "trireme/base/error.hpp"

namespace trireme::device {
namespace {

Gpu describe(int index) {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, index), "read a GPU's properties");
  std::array<char, 32> bus{};
  cuda::check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index), "read a GPU's PCI address");
  return {.index = index,
          .name = properties.name,
          .memory = {static_cast<std::int64_t>(properties.totalGlobalMem)},
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .bus = bus.data(),
          .nvlink = cuda::nvlink_domain(bus.data())};
}

std::string visible() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? "CUDA_VISIBLE_DEVICES is not set" : fmt::format("CUDA_VISIBLE_DEVICES = \"{}\"", value);
}

}  // namespace

bool built_for_gpus() { return true; }

GpuProbe probe_gpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();  // the next call would report it again
    const char* why = status == cudaSuccess ? "no device" : cudaGetErrorString(status);
    return {.gpus = {}, .reason = fmt::format("CUDA finds no GPU that this process may use ({}; {})", why, visible())};
  }
  GpuProbe found;
  for (int index = 0; index < count; ++index) found.gpus.push_back(describe(index));
  return found;
}

c10::Device use_gpu(int index) {
  const Gpu gpu = describe(index);
  constexpr int oldest = 8;  // the build's oldest architecture is 80
  if (gpu.major < oldest)
    throw EnvironmentError(
        fmt::format("GPU {} ({}) has compute capability {}.{}; this trireme was built for {}.0 and later. Set "
                    "device.type = \"cpu\".",
                    index, gpu.name, gpu.major, gpu.minor, oldest));
  cuda::check(cudaSetDevice(index), "use a GPU");
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  // Libtorch's default lets cuBLAS add the partial sums of a bf16 product in bf16.
  at::globalContext().setAllowBF16ReductionCuBLAS(false);
  set_host_memory_apart();
  cuda::charge_gpu_memory();
  return {c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace trireme::device
