// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace trireme::comm {

inline constexpr std::size_t page = 4096;

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

}  // namespace trireme::comm
