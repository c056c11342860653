// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tokenizer {

/// Text to token ids and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The ids of `text`, without any mark of beginning or end.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The ids of `text` that follows other text of its document, cut before white space: together with that text's ids
  /// the same as those of the whole.
  [[nodiscard]] virtual std::vector<std::int32_t> encode_continuation(std::string_view text) const = 0;
  /// Whether a document may be encoded in parts by the two above; else only as a whole, by `encode`.
  [[nodiscard]] virtual bool encodes_parts() const { return true; }
  /// The text of `ids`. Marks such as the end of a document have none; ids outside the vocabulary show as unknown.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// The vocabulary's entry for `id` of [0, vocab_size), as the tokenizer's file has it; empty if it has none.
  [[nodiscard]] virtual std::string piece(std::int32_t id) const = 0;
  /// Number of ids, the end of a document included: the least model.vocab_size.
  [[nodiscard]] virtual std::int64_t vocab_size() const = 0;
  /// The ids before every document and prompt, from the post-processor, such as <s>. None for most.
  [[nodiscard]] virtual std::vector<std::int32_t> document_begin() const { return {}; }
  /// The id that the tokenizer's files name as the beginning of a text, put before documents or not; none for many.
  [[nodiscard]] virtual std::optional<std::int32_t> bos_token() const { return std::nullopt; }
  /// Whether transformers puts `document_end` after a text, as the tokenizer's files have it.
  [[nodiscard]] virtual bool puts_end() const { return false; }
  /// 32 hexadecimal digits that change with everything in the tokenizer's files that decides ids, the first and last
  /// tokens of documents included, but not with how the files are written. Empty: there are none.
  [[nodiscard]] virtual std::string definition() const { return ""; }
  /// Parts of the tokenizer's files for which other programs may produce other ids; to be logged once.
  [[nodiscard]] virtual std::vector<std::string> warnings() const { return {}; }
  /// The id that ends every document.
  [[nodiscard]] virtual std::int32_t document_end() const = 0;
};

/// "bytes": one id per byte, 256 ends a document. "spm:MODEL": a SentencePiece model, whose end-of-sentence id ends a
/// document; uses add_bos_token, bos_token and eos_token of tokenizer_config.json in its folder. "hf:FILE": a
/// tokenizer.json of Hugging Face, or the directory that holds it, equal token by token to the `tokenizers` package
/// (byte-level and SentencePiece-like BPE, unigram); the eos_token of tokenizer_config.json in its folder ends a
/// document. Throws ConfigError for another `spec`, DataError when the file is missing (with the nearest name), is of
/// another kind, has an unsupported component (with its JSON key), or has no token for the end of a document.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace trireme::tokenizer
