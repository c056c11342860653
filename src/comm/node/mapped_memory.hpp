// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/units.hpp"

namespace trireme::comm {

/// [elements], zeroed: a separate, page-aligned mapping that a window may replace, not charged to any category. The
/// system allocates its pages when they are first written. Undefined if the system has no such range of addresses,
/// or limits them (`ulimit -v`): the mapping spans the other ranks' parts too, which such a limit does not expect.
[[nodiscard]] at::Tensor mapped_memory(std::int64_t elements, DType type);

}  // namespace trireme::comm
