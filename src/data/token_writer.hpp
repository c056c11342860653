// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/io/atomic_file.hpp"
#include "trireme/data/token_type.hpp"

namespace trireme::data {

/// Writes a token file that TokenFile's `auto` reads back: a Megatron .bin/.idx pair when `output` ends in .idx (a
/// sequence per document), else raw uint16 when vocab_size <= 65536 and raw uint32 above. Nothing appears under the
/// name before `finish`.
class TokenWriter {
 public:
  /// Makes its directory. Throws WriteError when the file cannot be created, DataError when a raw `output` lies beside
  /// an .idx of its name, by which it would be taken for a Megatron file. masked: a mask of targets goes beside it;
  /// else one that lies there is removed with the tokens that it belongs to.
  TokenWriter(const std::string& output, std::int64_t vocab_size, bool masked = false);

  /// Appends tokens of the document being written, each of [0, vocab_size); with a mask `counts` has as many bytes, 1
  /// for those that count as targets, else 0. Throws WriteError.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> counts = {});
  /// Ends the document: what is appended next belongs to another one.
  void end_document();
  /// Puts the complete file in place. Throws WriteError; then nothing is left behind.
  void finish();

  [[nodiscard]] TokenType type() const noexcept { return type_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// The file that holds the tokens.
  [[nodiscard]] const std::string& path() const noexcept { return tokens_file_.path(); }

 private:
  void end_sequence();
  void publish_mask();

  std::int64_t vocab_size_;
  TokenType type_;
  std::optional<std::string> index_path_;  ///< Megatron only
  io::AtomicFile tokens_file_;
  std::optional<io::AtomicFile> mask_;
  std::int64_t tokens_ = 0;
  std::int64_t sequence_tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> document_starts_ = {0};
};

}  // namespace trireme::data
