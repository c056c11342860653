// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/matrix.hpp"

namespace trireme::kernels::cuda {

using device::cuda::Matrix;

}  // namespace trireme::kernels::cuda
