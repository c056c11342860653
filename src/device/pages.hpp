// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace trireme::device {

struct Block;

/// Bytes that a block for `bytes` of data takes from the system, with its header.
[[nodiscard]] std::size_t mapped_bytes(std::size_t bytes);

/// A new block for `bytes` of data, zeroed where `own_pages` apply and otherwise if `zeroed`; nullptr when the system
/// has no memory.
[[nodiscard]] Block* map_block(std::size_t bytes, bool zeroed) noexcept;
void unmap_block(Block& block) noexcept;

}  // namespace trireme::device
