// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/launch.cuh"

#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "device/cuda/check.hpp"
#include "trireme/base/error.hpp"

namespace trireme::device::cuda {

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void check_launch(cudaError_t result, const char* kernel) {
  if (result == cudaSuccess) return;
  throw EnvironmentError(
      fmt::format("the GPU kernel {} could not be started: {} ({}). An earlier kernel may have "
                  "failed: CUDA_LAUNCH_BLOCKING=1 names it.",
                  kernel, cudaGetErrorString(result), cudaGetErrorName(result)));
}

const Chip& chip() {
  static const Chip known = [] {
    int gpu = 0;
    check(cudaGetDevice(&gpu), "ask for the GPU of this thread");
    const auto ask = [&](cudaDeviceAttr attribute) {
      int value = 0;
      check(cudaDeviceGetAttribute(&value, attribute, gpu), "ask for an attribute of the GPU");
      return value;
    };
    return Chip{.multiprocessors = ask(cudaDevAttrMultiProcessorCount),
                .shared_bytes = ask(cudaDevAttrMaxSharedMemoryPerMultiprocessor),
                .shared_bytes_a_block = ask(cudaDevAttrMaxSharedMemoryPerBlockOptin),
                .reserved_bytes = ask(cudaDevAttrReservedSharedMemoryPerBlock)};
  }();
  return known;
}

void allow_shared_bytes(const void* kernel, const char* name, int bytes) {
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), name);
}

}  // namespace trireme::device::cuda
