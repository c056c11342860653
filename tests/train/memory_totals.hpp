// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "trireme/device/memory.hpp"

namespace trireme::train {

/// Sums of all categories on both sides, and the allocator's count.
struct MemoryTotals {
  std::int64_t charged = 0, allocated = 0;
};
inline MemoryTotals totals() {
  const device::MemoryUse use = device::memory_use();
  return {.charged = (use[device::Space::device].total + use[device::Space::host].total).value,
          .allocated = use.allocated.value};
}

/// This rank's part of the windows that ranks of a node share, as the kernel lists them.
inline std::int64_t shared_windows(int ranks) {
  std::int64_t bytes = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t name = line.find("/dev/shm/trireme-");
    if (name == std::string::npos || line.find("trireme-abort-", name) != std::string::npos) continue;
    const std::size_t dash = line.find('-');
    bytes += std::stoll(line.substr(dash + 1), nullptr, 16) - std::stoll(line, nullptr, 16);
  }
  return bytes / ranks;
}
}  // namespace trireme::train
