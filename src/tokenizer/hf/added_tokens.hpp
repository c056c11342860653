// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hf/normalizer.hpp"
#include "tokenizer/model/trie.hpp"
#include "tokenizer/model/vocabulary.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

inline constexpr std::int32_t no_id = -1;

/// An entry of "added_tokens": a text that is always one token.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;  ///< only between characters that are none of a word
  bool left_strip = false;   ///< takes the white space before it
  bool right_strip = false;
  bool normalized = false;  ///< looked for after normalization
};

/// Throws DataError with the key of the faulty entry.
[[nodiscard]] std::vector<AddedToken> read_added_tokens(const Node& node);

/// `in_file`, the tokens of "added_tokens" at `node`, and those of other files as transformers adds them: `listed`
/// replace the flags of tokens that are there, `if_absent` do not. Ids are those of the `tokenizers` package: the
/// vocabulary's, or the next one behind the model's tokens and the added ones. model_tokens: of the model alone. Throws
/// DataError where tokenizer.json has another id, which the package does not follow.
[[nodiscard]] std::vector<AddedToken> numbered(const Node& node, std::vector<AddedToken> in_file,
                                               const std::vector<AddedToken>& listed,
                                               const std::vector<AddedToken>& if_absent, const Vocabulary& vocabulary,
                                               std::size_t model_tokens);

/// Finds added tokens in a text: the leftmost, of those the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  /// Takes the tokens of `all` that are matched after normalization, in normalized form, or those matched before.
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
