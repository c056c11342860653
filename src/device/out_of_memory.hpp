// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The message for `asked` bytes that could not be had: the op that asked, the table by category, largest first, with
/// the op of each peak, and what to do: the advice of `help`, or a word about the largest.
[[nodiscard]] std::string out_of_memory_text(Account account, Bytes asked, const MemoryUse& use,
                                             const OutOfMemoryHelp& help);

/// The same of this moment, with the help that was given.
[[nodiscard]] std::string no_memory_text(Account account, Bytes asked);

}  // namespace trireme::device
