// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/launch.cuh"

#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

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

}  // namespace trireme::device::cuda
