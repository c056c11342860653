// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::device::cuda {

/// A matrix on the device whose rows may be apart. data: null for none.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;
};

}  // namespace trireme::device::cuda
