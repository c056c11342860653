// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/launch.cuh"

namespace trireme::kernels::cuda {

using namespace device::cuda;

}  // namespace trireme::kernels::cuda
