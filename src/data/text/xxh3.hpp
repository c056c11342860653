// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

namespace trireme::data::text {

/// XXH3 (64 bits, seed 0, https://github.com/Cyan4973/xxHash) of bytes that are added piece by piece.
class Xxh3 {
 public:
  Xxh3();
  void add(std::span<const char> bytes);
  /// The hash of all bytes added so far, in 16 hexadecimal digits as xxhsum -H3 prints them.
  [[nodiscard]] std::string hex() const;

 private:
  std::shared_ptr<void> state_;
};

}  // namespace trireme::data::text
