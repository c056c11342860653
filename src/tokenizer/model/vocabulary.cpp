// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/model/vocabulary.hpp"

#include <fmt/format.h>

#include <cstring>

namespace trireme::tokenizer::hf {

std::array<std::int32_t, 256> byte_tokens(const Vocabulary& vocabulary) {
  std::array<std::int32_t, 256> ids{};
  for (std::size_t byte = 0; byte < 256; ++byte) ids[byte] = id_of(vocabulary, fmt::format("<0x{:02X}>", byte));
  return ids;
}

std::uint64_t hash_of(std::string_view text) {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15u;
  std::uint64_t hash = text.size() * odd;
  const auto mix = [&](std::uint64_t word) {
    hash = (hash ^ word) * odd;
    hash ^= hash >> 32;
  };
  while (text.size() >= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  std::uint64_t tail = 0;
  for (std::size_t i = 0; i < text.size(); ++i) tail |= std::uint64_t{static_cast<unsigned char>(text[i])} << 8 * i;
  mix(tail);
  return hash;
}

}  // namespace trireme::tokenizer::hf
