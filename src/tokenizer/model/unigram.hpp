// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/model/bpe.hpp"
#include "tokenizer/model/trie.hpp"
#include "tokenizer/model/vocabulary.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// The unigram language model (Kudo 2018): of all ways to write a piece in tokens the most likely, by Viterbi.
class Unigram {
 public:
  /// Throws DataError with the key of a faulty or unsupported entry.
  Unigram(const Node& model, const Vocabulary& vocabulary);

  /// Appends the ids of `piece`, valid UTF-8, to `out`. Throws DataError for a character that no token holds when the
  /// model has no unknown token.
  void encode(std::string_view piece, Work& work, std::vector<std::int32_t>& out) const;

 private:
  void encode_anew(std::string_view piece, std::vector<std::int32_t>& out) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& out) const;

  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::int32_t unknown_ = -1;
  bool byte_fallback_;
  std::array<std::int32_t, 256> byte_ids_{};
  const std::string where_;
  Vocabulary vocabulary_;
};

}  // namespace trireme::tokenizer::hf
