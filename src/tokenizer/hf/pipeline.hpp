// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/hf/added_tokens.hpp"
#include "tokenizer/hf/decoder.hpp"
#include "tokenizer/hf/normalizer.hpp"
#include "tokenizer/hf/post_processor.hpp"
#include "tokenizer/hf/pre_tokenizer.hpp"
#include "tokenizer/model/bpe.hpp"
#include "tokenizer/model/unigram.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// The tokenizer of a tokenizer.json: finds added tokens, normalizes and splits the text between them, and encodes it
/// piece by piece. Equal, token by token, to the `tokenizers` package, without its truncation and padding.
class Pipeline {
 public:
  /// `file`: the parsed tokenizer.json. listed, if_absent: tokens of other files of its folder, see `numbered`. Throws
  /// DataError with the key of a faulty or unsupported component.
  explicit Pipeline(const Node& file, const std::vector<AddedToken>& listed = {},
                    const std::vector<AddedToken>& if_absent = {});

  /// The ids of `text` without those of the post-processor; bytes that are no UTF-8 are read as U+FFFD. Safe from
  /// several threads.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
  /// The text of `ids` without special tokens; an id that has no token is U+FFFD.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  /// One more than the largest id.
  [[nodiscard]] std::int64_t vocab_size() const { return static_cast<std::int64_t>(texts_.size()); }
  /// The text of the token `id` of [0, vocab_size), special or not; empty if there is none.
  [[nodiscard]] const std::string& piece(std::int32_t id) const { return texts_[static_cast<std::size_t>(id)].text; }
  /// The id of a token's text, or -1.
  [[nodiscard]] std::int32_t id(std::string_view token) const;
  [[nodiscard]] const Frame& frame() const { return frame_; }
  /// With those of the other files in the folder of tokenizer.json.
  [[nodiscard]] const std::vector<AddedToken>& added_tokens() const { return added_; }

 private:
  struct Buffers {
    Work work;
    Pieces pieces;
    std::string valid;
    std::string normalized;
  };
  using Model = std::variant<Bpe, Unigram>;
  static Model read_model(const Node& node, const Vocabulary& vocabulary, PreTokenizers& pre_tokenizers);
  void read_texts(const Node& vocabulary);
  void encode_section(std::string_view section, bool begins, Buffers& buffers, std::vector<std::int32_t>& ids) const;
  [[nodiscard]] std::unique_ptr<Buffers> take_buffers() const;

  Vocabulary ids_;  ///< added tokens included
  std::vector<AddedToken> added_;
  std::vector<Normalizer> normalizers_;
  AddedTokenFinder in_text_;
  AddedTokenFinder in_normalized_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<const Model> model_;
  Frame frame_;
  std::vector<Decoder> decoders_;

  struct Token {
    std::string text;
    bool exists = false;
    bool special = false;
  };
  std::vector<Token> texts_;  ///< by id

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Buffers>> free_;  ///< of threads that are done
};

}  // namespace trireme::tokenizer::hf
