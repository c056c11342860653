// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::data {

/// XXH3 (64 bits, seed 0): https://github.com/Cyan4973/xxHash.
[[nodiscard]] std::uint64_t xxh3(std::span<const std::byte> bytes);

/// The same of bytes added piece by piece.
class Xxh3 {
 public:
  Xxh3();
  void add(std::span<const std::byte> bytes);
  void add(std::span<const char> bytes) { add(std::as_bytes(bytes)); }
  [[nodiscard]] std::uint64_t value() const;
  /// value() in 16 hexadecimal digits, as `xxhsum -H3` prints it.
  [[nodiscard]] std::string hex() const;

 private:
  std::unique_ptr<void, void (*)(void*)> state_;
};

}  // namespace trireme::data
