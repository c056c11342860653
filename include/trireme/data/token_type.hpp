// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::data {

/// Type of a token in a file, little-endian.
enum class TokenType : std::uint8_t { uint8, int8, int16, uint16, int32, uint32, int64 };

/// Bytes of one stored token.
[[nodiscard]] constexpr std::int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8: return 1;
    case TokenType::int16:
    case TokenType::uint16: return 2;
    case TokenType::int32:
    case TokenType::uint32: return 4;
    case TokenType::int64: return 8;
  }
  return 0;
}

[[nodiscard]] constexpr std::string_view to_text(TokenType type) {
  switch (type) {
    case TokenType::uint8: return "uint8";
    case TokenType::int8: return "int8";
    case TokenType::int16: return "int16";
    case TokenType::uint16: return "uint16";
    case TokenType::int32: return "int32";
    case TokenType::uint32: return "uint32";
    case TokenType::int64: return "int64";
  }
  return "?";
}

/// The type of a raw token file for a vocabulary: uint16 when every id fits, else uint32.
[[nodiscard]] constexpr TokenType raw_token_type(std::int64_t vocab_size) {
  return vocab_size <= 65536 ? TokenType::uint16 : TokenType::uint32;
}

/// The type Megatron-LM's own tools choose for a vocabulary.
[[nodiscard]] constexpr TokenType megatron_token_type(std::int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::uint16 : TokenType::int32;
}

}  // namespace trireme::data
