// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/device/memory.hpp"

/// Allocations and frees in order, recorded on request.
namespace trireme::device {

/// Work of a thread: an op of the schedule and the step since the run began; negative outside of both.
struct Operation {
  int op = -1;
  std::int64_t step = -1;
};
/// Sets the operation of the calling thread.
void set_operation(Operation operation);
[[nodiscard]] Operation current_operation();

/// A block that was allocated, freed, or charged to another account (freed from the one, allocated to the other).
struct MemoryEvent {
  bool allocated = true;
  std::uintptr_t address = 0;
  Bytes size;  ///< as requested
  Account account;
  Operation operation;            ///< of the thread that did it
  std::int64_t microseconds = 0;  ///< since 1970
};

struct MemoryHistory {
  std::vector<MemoryEvent> live;    ///< blocks not freed yet, by the events that allocated them, in order of address
  std::vector<MemoryEvent> events;  ///< in order of time; only the newest are kept
  std::int64_t dropped = 0;         ///< older events that were not
};

/// Starts to record and keeps the newest `most` events (0: stops and discards them). Does not include earlier
/// allocations, nor memory charged by `Charge`.
void record_memory(std::size_t most);
/// Events recorded so far.
[[nodiscard]] MemoryHistory memory_history();

}  // namespace trireme::device
