// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::checkpoint {

/// XXH3 (64 bits, seed 0): https://github.com/Cyan4973/xxHash.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> bytes);

/// The same of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  void* state_;
};

}  // namespace trireme::checkpoint
