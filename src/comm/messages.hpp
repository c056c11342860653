// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace trireme::comm {

/// Begin of each message of an all-to-all; messages are contiguous.
inline std::vector<std::int64_t> begins(std::span<const std::int64_t> bytes) {
  std::vector<std::int64_t> out(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), out.begin(), std::int64_t{0});
  return out;
}

}  // namespace trireme::comm
