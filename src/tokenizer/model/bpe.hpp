// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/model/flat_map.hpp"
#include "tokenizer/model/vocabulary.hpp"
#include "tokenizer/model/word_cache.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// Encoding workspace of one thread.
struct Work {
  WordCache cache;
  std::vector<std::int32_t> symbols;
  std::vector<std::uint32_t> ranks;
};

/// Byte-pair encoding (Sennrich et al. 2016): the characters of a piece, or its bytes, merged pair by pair in the order
/// in which the pairs were learnt.
class Bpe {
 public:
  /// bytes: pieces are bytes, for which the file's vocabulary has GPT-2's printable characters. Throws DataError with
  /// the key of a faulty or unsupported entry.
  Bpe(const Node& model, const Vocabulary& vocabulary, bool bytes);

  /// Whether `model` marks where words begin or end, so that a piece has to be characters.
  [[nodiscard]] static bool has_affixes(const Node& model);

  /// Appends the ids of `piece` to `out`.
  void encode(std::string_view piece, Work& work, std::vector<std::int32_t>& out) const;

 private:
  struct Merge {
    std::uint32_t rank = 0;
    std::int32_t id = 0;
  };
  void read_merges(const Node& node, const Vocabulary& vocabulary);
  void read_boundaries(const Vocabulary& vocabulary);
  [[nodiscard]] const Merge* merge_of(std::int32_t left, std::int32_t right) const {
    return merges_.find(std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right));
  }
  [[nodiscard]] std::int32_t id_of_character(std::string_view character, bool first, bool last) const;
  void encode_cached(std::string_view segment, Work& work, std::vector<std::int32_t>& out) const;
  void encode_segment(std::string_view segment, Work& work, std::vector<std::int32_t>& out) const;
  void split_characters(std::string_view segment, std::vector<std::int32_t>& symbols) const;
  void merge_few(Work& work) const;
  void merge_many(std::vector<std::int32_t>& symbols) const;

  bool bytes_;
  bool fuse_unknown_;
  bool byte_fallback_;
  bool whole_first_;  ///< a piece in the vocabulary is one token, regardless of merges
  std::string prefix_;
  std::string suffix_;
  std::int32_t unknown_ = -1;
  std::array<std::int32_t, 256> byte_ids_{};
  bool all_byte_tokens_ = false;
  Vocabulary pieces_;  ///< by text
  FlatMap<std::int32_t> characters_;
  FlatMap<Merge> merges_;
  /// A piece may be cut before U+2581 if no token crosses that boundary. Indexed by the byte before it,
  /// 0xFF for U+2581 itself.
  bool cuts_ = false;
  std::array<bool, 256> joined_{};
};

}  // namespace trireme::tokenizer::hf
