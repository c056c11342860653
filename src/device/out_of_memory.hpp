// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The message for `asked` bytes that could not be had: the table by category, largest first, and what to do about the
/// largest.
[[nodiscard]] std::string out_of_memory_text(Account account, Bytes asked, const MemoryUse& use);

}  // namespace trireme::device
