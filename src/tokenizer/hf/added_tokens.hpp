// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hf/normalizer.hpp"
#include "tokenizer/model/trie.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// An entry of "added_tokens": a text that is one token wherever it stands.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  ///< only between characters that are none of a word
  bool left_strip = false;   ///< takes the white space before it
  bool right_strip = false;
  bool normalized = false;  ///< looked for after normalization
};

/// Throws DataError with the key of what is wrong.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const Node& node);

/// Finds added tokens in a text: the leftmost, of those the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  /// Of `all` those that are looked for after normalization, in normalized form, or those before.
  AddedTokenFinder(const std::vector<AddedToken>& all, bool normalized, const std::vector<Normalizer>& normalizers);

  /// Calls `token(id)` for each added token and `between(begin, end)` for the text between them, in order.
  void split(std::string_view text, const std::function<void(std::int32_t)>& token,
             const std::function<void(std::size_t, std::size_t)>& between) const;

 private:
  struct Match {
    std::size_t begin;
    std::size_t end;
    const AddedToken* token;
  };
  [[nodiscard]] Match next(std::string_view text, std::size_t from) const;

  std::vector<AddedToken> tokens_;
  Trie trie_;  ///< to the index in tokens_
};

}  // namespace trireme::tokenizer::hf
