// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/check.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::device::cuda {

void check(cudaError_t status, std::string_view what, std::source_location where) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // the next call would report it again
  throw EnvironmentError(fmt::format("CUDA could not {}: {} ({}), at {}:{}", what, cudaGetErrorString(status),
                                     cudaGetErrorName(status), where.file_name(), where.line()));
}

}  // namespace trireme::device::cuda
