// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda_experts.hpp"

namespace trireme::kernels::cuda {

bool multiplies_in_groups() {
  thread_local const bool has = [] {
    int device = 0, major = 0;
    check_launch(cudaGetDevice(&device), "a grouped product");
    check_launch(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "a grouped product");
    return major >= 9;
  }();
  return has;
}

}  // namespace trireme::kernels::cuda
