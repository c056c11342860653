// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

/// CRC-32C (Castagnoli's polynomial) of the bytes of `bytes`, as RFC 3720 section 12.1 defines it; 0 of none. A byte at
/// a time: for small records.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

/// CRC-32 of zlib, gzip and PNG (RFC 1952 section 8).
[[nodiscard]] std::uint32_t crc32(std::string_view bytes);

}  // namespace trireme
