// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/device/allocator.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {

/// The message for a failed allocation of `asked` bytes: its op, the table by category, largest first, with the op of
/// each peak, and a remedy: the advice of `help`, or a note on the largest. use: `reserved` and `allocated` are of the
/// requested memory. budget: the run file's limit; 0: none.
[[nodiscard]] std::string out_of_memory_text(Account account, Bytes asked, const MemoryUse& use,
                                             const OutOfMemoryHelp& help, Bytes budget = {});

/// The same of this moment, with the help that was given, for memory of the host.
[[nodiscard]] std::string no_memory_text(Account account, Bytes asked);

}  // namespace trireme::device
