// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The same memory with its pages locked for as long as it lives: copies from and to a GPU need no host in between.
/// Throws EnvironmentError when the system refuses.
[[nodiscard]] c10::DataPtr page_locked(c10::DataPtr memory, std::size_t bytes);

/// Moves the charge of libtorch's block at `data` on a GPU. Does nothing for memory that is not its allocator's.
void recharge_on_gpu(const void* data, Category category) noexcept;

}  // namespace trireme::device
