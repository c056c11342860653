// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The message for `asked` bytes that could not be had: the op that asked, the table by category, largest first, with
/// the op of each peak, and what to do: the advice of `help`, or a word about the largest. use: `reserved` and
/// `allocated` are of the memory that was asked. budget: what the run file allows of it; 0: no such bound.
[[nodiscard]] std::string out_of_memory_text(Account account, Bytes asked, const MemoryUse& use,
                                             const OutOfMemoryHelp& help, Bytes budget = {});

/// The same of this moment, with the help that was given, for memory of the host.
[[nodiscard]] std::string no_memory_text(Account account, Bytes asked);

}  // namespace trireme::device
