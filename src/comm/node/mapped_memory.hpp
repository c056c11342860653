// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "trireme/base/units.hpp"

namespace trireme::comm {

/// [elements], zeroed: memory of its own pages, where a window may be put; charged to nobody. Nothing of it is taken
/// from the system before it is written. Undefined where the system has no such range of addresses, or counts them
/// (`ulimit -v`): they are those of the others' parts too, which such a limit does not expect.
[[nodiscard]] at::Tensor mapped_memory(std::int64_t elements, DType type);

}  // namespace trireme::comm
