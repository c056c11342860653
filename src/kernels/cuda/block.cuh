// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/cuda/block.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/matrix.hpp"

namespace trireme::kernels::cuda {

/// Calls body.operator()<lanes>() with the least power of two of threads that hold a head in packs of n; false if
/// the head is no whole number of packs, or more than a warp holds.
template <int n, int lanes = 1, class Body>
bool with_lanes(std::int64_t head_dim, const Body& body) {
  if (head_dim % n != 0) return false;
  if (head_dim <= std::int64_t{lanes} * n) return body.template operator()<lanes>(), true;
  if constexpr (lanes < 32) return with_lanes<n, 2 * lanes>(head_dim, body);
  return false;
}

}  // namespace trireme::kernels::cuda
