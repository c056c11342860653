// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/token_type.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// Counts of a finished `tokenize_files`.
struct TokenizeCounts {
  std::int64_t documents = 0;  ///< those for validation included
  std::int64_t text_bytes = 0;
  std::int64_t tokens = 0;  ///< the ends of the documents included, validation not
  TokenType type = TokenType::uint16;
  std::string tokens_path;  ///< of a Megatron pair its .bin
  std::int64_t validation_documents = 0;
  std::int64_t validation_tokens = 0;
  std::string validation_path;        ///< empty without validation
  std::int64_t empty_documents = 0;   ///< files and lines without text, which are left out
  std::int64_t bad_lines = 0;         ///< that cannot be read, which are left out
  std::int64_t longest_document = 0;  ///< tokens
  std::int64_t counted_tokens = 0;    ///< that count in the loss, where responses alone do; validation not
  std::int64_t distinct_ids = 0;      ///< of the vocabulary that occur
};

/// Bytes of text read at a time; memory does not grow with the files, unless the tokenizer encodes documents as a
/// whole.
inline constexpr std::size_t tokenize_chunk_bytes = 1 << 16;

struct TokenizeOptions {
  /// The SPEC of the tokenizer, for the sidecar.
  std::string spec = {};
  /// Field of a JSON line that holds the document. Empty: plain text, each file one document.
  std::string field = {};
  /// Not empty: the field of a response to the text at `field`. Only its tokens count in the loss: a mask is written
  /// to data::mask_path.
  std::string response = {};
  /// Not empty: `field` holds messages, written as "chatml" or "llama3"; those of the assistant alone count.
  std::string chat = {};
  /// Without a field: files that are JSON are text like others.
  bool plain = false;
  /// Number of lines that may be skipped: those that are no JSON object, lack their field or hold a message that the
  /// format does not support; the first ones are listed in a warning.
  std::int64_t skip_bad = 0;
  /// The fraction of the documents written to `validation_path(output)`, chosen by `is_validation`; 0: none.
  double validation = 0;
  /// Other files that are read, none of which the output may replace.
  std::vector<std::string> tokenizer_files = {};
  int threads = 1;
  std::size_t chunk_bytes = tokenize_chunk_bytes;
  /// Called as the files are read, with their bytes so far, before decompression.
  std::function<void(std::int64_t, const TokenizeCounts&)> progress = {};
};

/// Encodes documents, each between the tokenizer's begin and end of a document, into `output`: Megatron .bin/.idx when
/// it ends in .idx, else raw uint16 or uint32 by the vocabulary, with a sidecar (TokenWriter). `arguments`: files,
/// plain or compressed by gzip or zstd, "-" for standard input, folders and patterns (text::expand_inputs). The tokens
/// do not depend on the number of threads. `output` appears only when complete. Throws DataError for a file that cannot
/// be read, is no plain text (JSON lines without a field, binary, another encoding than UTF-8; a few bytes of invalid
/// UTF-8 are a warning) or no JSON lines, or holds one document of more than 1 GiB that is encoded as a whole;
/// ConfigError when there is no file, `output` is one of them, or no document remains for validation or training;
/// WriteError when writing fails (disk full).
TokenizeCounts tokenize_files(const tokenizer::Tokenizer& tokenizer, const std::vector<std::string>& arguments,
                              const std::string& output, const TokenizeOptions& options = {});

/// The files that `tokenize_files` reads, in order. Throws as it does before it reads.
[[nodiscard]] std::vector<std::string> tokenize_inputs(const std::vector<std::string>& arguments,
                                                       const std::string& output, const TokenizeOptions& options);

/// Path of the documents for validation: "data/web-validation.idx" for "data/web.idx".
[[nodiscard]] std::string validation_path(const std::string& output);

/// Whether document `document`, counted from 0, is for validation: of each 1 / `share` documents one that is drawn, by
/// their numbers alone. Of n documents n * share are, rounded down, or one more. share: above 0, at most 0.5.
[[nodiscard]] bool is_validation(std::int64_t document, double share);

/// Number of bytes of `text` to encode now when more may follow: up to the last line end (which then begins the next
/// piece), else the last blank, else all whole UTF-8 characters.
[[nodiscard]] std::size_t text_cut(std::string_view text);

}  // namespace trireme::data
