// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace trireme::comm {

inline constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

inline constexpr std::size_t huge_page = std::size_t{1} << 21;

/// Where a window begins in its file: like the memory of a buffer, whose header lies in the page before, so that huge
/// pages of both begin together.
inline constexpr std::size_t window_lead = page;

}  // namespace trireme::comm
