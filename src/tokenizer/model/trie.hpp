// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/model/flat_map.hpp"

namespace trireme::tokenizer::hf {

/// Texts with a number each, found as prefixes of another text.
class Trie {
 public:
  Trie() : values_(1, none) { roots_.fill(0); }

  /// A text given twice has the last number.
  void insert(std::string_view text, std::int32_t value) {
    std::uint32_t node = 0;
    for (const char byte : text) node = child_or_new(node, static_cast<unsigned char>(byte));
    values_[node] = value;
  }

  /// Calls `found(bytes, value)` for every text of the trie that `text` begins with, the shortest first.
  template <class Found>
  void prefixes(std::string_view text, Found found) const {
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      if (node == 0) {
        node = roots_[byte];
        if (node == 0) return;
      } else {
        const std::uint32_t* next = children_.find(std::uint64_t{node} << 8 | byte);
        if (next == nullptr) return;
        node = *next;
      }
      if (values_[node] != none) found(i + 1, values_[node]);
    }
  }

  /// Whether some text begins with this byte.
  [[nodiscard]] bool begins(char byte) const { return roots_[static_cast<unsigned char>(byte)] != 0; }

 private:
  static constexpr std::int32_t none = -1;

  std::uint32_t child_or_new(std::uint32_t node, unsigned char byte) {
    const auto fresh = static_cast<std::uint32_t>(values_.size());
    std::uint32_t& child = node == 0 ? roots_[byte] : children_.insert(std::uint64_t{node} << 8 | byte, fresh);
    if (node == 0 && child == 0) child = fresh;
    if (child == fresh) values_.push_back(none);
    return child;
  }

  std::array<std::uint32_t, 256> roots_{};
  FlatMap<std::uint32_t> children_;
  std::vector<std::int32_t> values_;
};

}  // namespace trireme::tokenizer::hf
