// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/units.hpp"

namespace trireme::comm {

/// [elements], zeroed: memory of its own pages, where a window may be put; charged to nobody. Nothing of it is taken
/// from the system before it is written. Throws EnvironmentError where the system has no such range of addresses.
[[nodiscard]] at::Tensor mapped_memory(std::int64_t elements, DType type);

}  // namespace trireme::comm
