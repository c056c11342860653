// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

/// SHA-256 (FIPS 180-4) of bytes that are added piece by piece.
class Sha256 {
 public:
  void add(std::string_view bytes);
  /// The digest of all bytes added so far, in 64 hexadecimal digits.
  [[nodiscard]] std::string hex() const;

 private:
  void add_block(const unsigned char* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};  ///< bytes of a block that is not full
  std::uint64_t bytes_ = 0;
};

}  // namespace trireme
