// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

#include "trireme/device/memory.hpp"

namespace trireme::device {

enum class Kind { cached, exact };

/// `bytes` of memory charged to `account`; data and context are the same address, and `free_charged` is the deleter. An
/// exact block is zeroed. Throws EnvironmentError when there is no memory.
[[nodiscard]] c10::DataPtr allocate_charged(std::size_t bytes, Account account, Kind kind);
void free_charged(void* data) noexcept;
/// Moves the charge of the block at `data` to `account`.
void recharge(void* data, Account account) noexcept;

}  // namespace trireme::device
