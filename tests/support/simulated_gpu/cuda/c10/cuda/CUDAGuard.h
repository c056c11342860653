// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

namespace c10::cuda {

/// A process has one simulated GPU.
struct CUDAGuard {
  explicit CUDAGuard(Device) {}
  ~CUDAGuard() {}
};

}  // namespace c10::cuda
