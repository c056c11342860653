// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace trireme::comm {

inline constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

inline constexpr std::size_t huge_page = std::size_t{1} << 21;

/// Offset of a window in its file, the same as of a buffer's memory, whose header is in the preceding page, so that
/// huge pages of both are aligned.
inline constexpr std::size_t window_lead = page;

}  // namespace trireme::comm
