// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace trireme::tokenizer::hf {

/// Character for a blank in SentencePiece-like vocabularies: U+2581.
inline constexpr std::string_view space_piece = "\xe2\x96\x81";

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// Token texts to ids.
using Vocabulary = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

/// The id of a text, or -1.
[[nodiscard]] inline std::int32_t id_of(const Vocabulary& vocabulary, std::string_view text) {
  const auto found = vocabulary.find(text);
  return found == vocabulary.end() ? -1 : found->second;
}

/// The ids of the tokens <0x00> to <0xFF>, -1 for those that are missing.
[[nodiscard]] std::array<std::int32_t, 256> byte_tokens(const Vocabulary& vocabulary);

/// A hash of a short text.
[[nodiscard]] std::uint64_t hash_of(std::string_view text);

}  // namespace trireme::tokenizer::hf
