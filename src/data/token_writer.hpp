// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/io/atomic_file.hpp"
#include "trireme/data/sidecar.hpp"
#include "trireme/data/text/xxh3.hpp"
#include "trireme/data/token_type.hpp"

namespace trireme::data {

/// A file that appears when it is complete, and the hash of its bytes.
class HashedFile {
 public:
  explicit HashedFile(std::string path) : file_(std::move(path)) {}
  void write(std::span<const char> bytes) {
    hash_.add(bytes);
    file_.write(bytes);
  }
  [[nodiscard]] io::AtomicFile& file() noexcept { return file_; }
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  [[nodiscard]] std::string xxh3() const { return hash_.hex(); }

 private:
  io::AtomicFile file_;
  Xxh3 hash_;
};

/// Writes a token file that TokenFile's `auto` reads back: a Megatron .bin/.idx pair when `output` ends in .idx (a
/// sequence per document), else raw uint16 when vocab_size <= 65536 and raw uint32 above, with the ends of its
/// documents and its sidecar. Nothing appears under the name before `finish`.
class TokenWriter {
 public:
  /// Makes its directory. Throws WriteError when the file cannot be created, DataError when a raw `output` has
  /// an .idx of its name, since it would be read as a Megatron file. masked: also writes a mask of targets;
  /// otherwise an existing one is removed with the tokens that it belongs to.
  TokenWriter(const std::string& output, std::int64_t vocab_size, bool masked = false);

  /// Appends tokens of the document being written, each of [0, vocab_size); with a mask `counts` has as many bytes, 1
  /// for those that count as targets, else 0. Throws WriteError.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> counts = {});
  /// Ends the document of `text_bytes` bytes of text; the next token begins another one.
  void end_document(std::int64_t text_bytes = 0);
  /// Puts the complete file in place, and a sidecar: tokenizer, vocabulary, options and sources of `origin`, counts and
  /// hashes of the written files. Throws WriteError; then nothing is left behind.
  void finish(Sidecar origin = {});

  [[nodiscard]] TokenType type() const noexcept { return type_; }
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }
  /// The file that holds the tokens.
  [[nodiscard]] const std::string& path() const noexcept { return tokens_file_.path(); }

 private:
  void end_sequence();
  void remove_old(const std::string& path) const;
  void publish_mask();

  std::int64_t vocab_size_;
  TokenType type_;
  std::optional<std::string> index_path_;  ///< Megatron only
  HashedFile tokens_file_;
  HashedFile ends_;
  std::optional<HashedFile> mask_;
  std::int64_t tokens_ = 0;
  std::int64_t text_bytes_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t targets_ = 0;
  std::int64_t sequence_tokens_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> document_starts_ = {0};
};

}  // namespace trireme::data
