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
  std::function<std::string()> advice;         ///< remedies in the run file
};
/// Sets the texts of later error messages; empty ones reset them. Not during an allocation.
void help_out_of_memory(OutOfMemoryHelp help);

/// The error message for `asked` bytes that a GPU does not have: its allocator holds `reserved`, `allocated` of it in
/// use. budget: the run file's limit; 0: none.
[[nodiscard]] std::string no_gpu_memory_text(Account account, Bytes asked, Bytes reserved, Bytes allocated,
                                             Bytes budget);

/// Returns all cached blocks to the system; the result is their number of bytes.
Bytes trim();

/// Limits the memory taken from the system (cached blocks are returned first); beyond it an allocation throws
/// EnvironmentError with a table by category, as it does when the system is out of memory. 0: no limit.
void set_limit(Bytes limit);

/// Limits the bytes of cached free blocks; the longest unused are returned first. 0: no fixed limit. In any case blocks
/// are returned before reserved memory exceeds one and a half times the highest use.
void set_cache_limit(Bytes limit);

}  // namespace trireme::device
