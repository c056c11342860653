// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/base/units.hpp"
#include "trireme/device/memory.hpp"

/// The allocator behind every libtorch CPU tensor: charges each block to the calling thread's account (`ChargeTo`) and
/// keeps freed blocks for reuse, because page faults on fresh memory cost a CPU step up to 30%.
namespace trireme::device {

/// Makes this allocator libtorch's CPU allocator for the rest of the process. Call it once, before the first tensor;
/// later calls do nothing. Blocks are aligned to 64 bytes, those from 1 MiB on to a page.
void install_allocator();

/// Information of the layers above for out-of-memory messages. Both may be empty.
struct OutOfMemoryHelp {
  std::function<std::string(int op)> op_text;  ///< an op of the running schedule, in words
  std::function<std::string()> advice;         ///< what to change in the run file
};
/// Gives them to the message of later failures; empty ones take them back. No allocation runs meanwhile.
void help_out_of_memory(OutOfMemoryHelp help);

/// The message for `asked` bytes that a GPU does not have: its allocator holds `reserved`, `allocated` of it in use.
/// budget: what the run file allows; 0: no such bound.
[[nodiscard]] std::string no_gpu_memory_text(Account account, Bytes asked, Bytes reserved, Bytes allocated,
                                             Bytes budget);

/// Gives all cached blocks back to the system and returns how many bytes that were.
Bytes trim();

/// Caps what is taken from the system (cached blocks are given back first); beyond it an allocation throws
/// EnvironmentError with a table by category, as it does when the system has no more. 0: no cap.
void set_limit(Bytes limit);

/// Caps the bytes of freed blocks that are kept; the longest unused go first. 0: no fixed cap. In any case blocks are
/// given back before what is reserved passes one and a half times the most that was ever in use.
void set_cache_limit(Bytes limit);

}  // namespace trireme::device
