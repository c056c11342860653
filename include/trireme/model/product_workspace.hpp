// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/units.hpp"

namespace trireme::model {

/// Workspace of a library of matrix products on a GPU: the request of cuBLAS on a Hopper GPU.
inline constexpr Bytes product_workspace{std::int64_t{32} << 20};

}  // namespace trireme::model
