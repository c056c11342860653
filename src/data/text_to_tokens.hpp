// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/text/encode.hpp"
#include "data/text/ordered.hpp"
#include "data/text/stream.hpp"
#include "data/token_writer.hpp"
#include "trireme/data/tokenize.hpp"

/// Text to tokens, for `trireme tokenize` on one rank or several and for the token caches of `trireme train`.
namespace trireme::data {

using Encoded = std::vector<text::EncodedPart>;

/// The tokenizer's part of a sidecar.
[[nodiscard]] Sidecar origin_of(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options);

/// Identifies what decides about ids and masks: tokenizer, library versions, fields and chat format. 32 hexadecimal
/// digits.
[[nodiscard]] std::string identity_of_ids(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options);

/// Throws ConfigError when there is no input, or an output is an input or one of the tokenizer's files.
void check_tokenize_arguments(const std::vector<std::string>& inputs, const TokenizeOptions& options,
                              const std::string& output);

/// Reads one input and hands its documents to the threads.
class TextReader {
 public:
  /// All outlive the reader. Throws ConfigError as text::check_chat.
  TextReader(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options, text::Ordered<Encoded>& work);

  /// advanced: called as the file is read, with its bytes so far, before decompression. lines_before: of a stream that
  /// begins within a file, counts the lines before it; called only for the message about a line that cannot be read.
  void read(text::Stream& stream, const std::function<void(std::int64_t)>& advanced,
            std::function<std::int64_t()> lines_before = {}) const;

 private:
  void read_document(text::Stream& stream, const std::function<void(std::int64_t)>& advanced) const;
  void read_lines(text::Stream& stream, const std::function<void(std::int64_t)>& advanced,
                  const std::function<std::int64_t()>& lines_before) const;

  const tokenizer::Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
  text::Ordered<Encoded>& work_;
  bool marks_divide_;
};

/// Takes encoded parts in order, chooses a file for every document, and counts.
class Documents {
 public:
  /// options: outlives it. Throws as TokenWriter.
  Documents(const tokenizer::Tokenizer& tokenizer, const std::string& output, const TokenizeOptions& options);

  /// Throws DataError at one bad line more than may be left out; WriteError.
  void add(const Encoded& parts);
  /// Puts the files in place and logs lines that were left out. origin: of the sidecars. Throws DataError when no
  /// document or no counted token was added, ConfigError when validation or training has no document, WriteError.
  TokenizeCounts finish(Sidecar origin);

  [[nodiscard]] const TokenizeCounts& counts() const { return counts_; }

 private:
  [[nodiscard]] std::string options_of(const std::string& part) const;
  void require_documents(const Sidecar& origin) const;
  void warn_of_bad_lines() const;
  void skip_bad(const std::string& why);
  void check_counted(std::int64_t counted, const std::string& part) const;
  [[nodiscard]] bool validates() const { return validation_ && is_validation(counts_.documents, options_.validation); }
  void end_document(TokenWriter& writer);

  const TokenizeOptions& options_;
  bool masked_;  ///< marks the tokens that count
  TokenWriter train_;
  std::optional<TokenWriter> validation_;
  std::vector<bool> seen_;
  std::int64_t document_tokens_ = 0;
  std::int64_t document_bytes_ = 0;
  std::int64_t validation_counted_ = 0;
  std::string first_bad_;  ///< messages of the first bad lines
  TokenizeCounts counts_;
};

/// Throws DataError for `bad` bad lines, the last of which has the message `why`, if more than `allowed`.
void check_bad_lines(std::int64_t bad, std::int64_t allowed, const std::string& why);

}  // namespace trireme::data
