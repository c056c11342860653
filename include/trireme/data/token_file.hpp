// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/io/input_file.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/data/sidecar.hpp"
#include "trireme/data/token_type.hpp"

namespace trireme::data {

class DocumentEnds;

/// Location of a token file and of its companions: the result of all look-ups by name, which only one rank makes.
struct TokenPlace {
  std::string path;        ///< of the tokens (a Megatron pair's .bin)
  bool indexed = false;    ///< a Megatron index exists, and `format` allows one
  bool masked = false;     ///< a mask exists
  bool described = false;  ///< it has a sidecar
};

/// Throws DataError if the file system cannot be queried.
[[nodiscard]] TokenPlace find_token_file(const std::string& path, config::TokenFormat format);

/// The files at a place: tokens, index, mask, sidecar and ends of documents. Throws DataError as find_token_file().
[[nodiscard]] std::vector<std::string> paths_of(const TokenPlace& place);

/// Files that would change how the tokens are read and are not there: index (where `format` may mean one), mask,
/// sidecar.
[[nodiscard]] std::vector<std::string> missing_beside(const TokenPlace& place, config::TokenFormat format);

/// A file of tokens in one of the formats of `data.format`, read by pread (no mmap: shuffled pages are slow on Lustre).
///
/// `automatic`: Megatron if its .idx exists (`x.idx` for `x.bin`, else `x` + ".idx"), llm.c by its magic
/// number, else raw uint16 when vocab_size <= 65536 and raw uint32 above. A Megatron pair may be named by its .bin, its
/// .idx or its common prefix.
///
/// The sidecar `<path>.meta` has the type of its tokens, and `<path>.ends` the ends of its documents; without them a
/// Megatron index has both.
///
/// `<path>.mask` marks the tokens that count as targets (tokenize --response, --chat): a byte per token, 1 or
/// 0.
class TokenFile {
 public:
  /// Opens the file and checks everything but the tokens. Throws DataError with the value found and the remedy:
  /// missing, empty, a size that is not a whole number of tokens, bad magic or version, an index, a mask or a sidecar
  /// that does not fit its .bin.
  TokenFile(const TokenPlace& place, config::TokenFormat format, std::int64_t vocab_size);
  TokenFile(const std::string& path, config::TokenFormat format, std::int64_t vocab_size)
      : TokenFile(find_token_file(path, format), format, vocab_size) {}
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;
  ~TokenFile();

  /// The file that holds the tokens (a Megatron pair's .bin).
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }
  /// Never `automatic`.
  [[nodiscard]] config::TokenFormat format() const noexcept { return format_; }
  [[nodiscard]] TokenType type() const noexcept { return type_; }
  /// Number of tokens; a Megatron file's stream is its sequences in index order.
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }

  /// Fills `out` with the tokens from position `first` on. Safe from several threads. Throws DataError when a token is
  /// not below vocab_size (naming file, position, id) or the file cannot be read; BugError beyond the end.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

  /// Whether the file has a mask.
  [[nodiscard]] bool masked() const noexcept { return mask_.has_value(); }
  /// Fills `out` from position `first` on with 1 if a token counts as a target, else 0. Safe from several threads.
  /// Throws DataError when the mask cannot be read or holds another byte; BugError without a mask or beyond the end.
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const;

  /// Metadata recorded by `trireme tokenize`; none for files of other programs.
  [[nodiscard]] const std::optional<Sidecar>& sidecar() const noexcept { return sidecar_; }
  /// Whether a sidecar or an index has the ends of its documents.
  [[nodiscard]] bool has_document_ends() const noexcept { return ends_ != nullptr; }
  /// The token that fills up rows: the end of a document by the sidecar, else 0.
  [[nodiscard]] std::int32_t padding() const;
  /// Number of documents. BugError without their ends.
  [[nodiscard]] std::int64_t documents() const;
  /// Fills `out` with the ends, in tokens, of documents from `document` on. Safe from several threads. Throws DataError
  /// when they cannot be read, fall or lie beyond the tokens; BugError without them or beyond the last one.
  void read_document_ends(std::int64_t document, std::span<std::int64_t> out) const;
  /// For each token from position `first` on: where its document begins, counted from `first`, 0 if that is earlier.
  /// Safe from several threads. Throws DataError when the ends cannot be read; BugError without them or beyond the end.
  void read_document_begins(std::int64_t first, std::span<std::int32_t> out) const;

  /// 64 bits that detect changes of the file between runs: its size, type, up to 4 MiB of its bytes and of its mask,
  /// spread over all of them, and a Megatron file's whole index; not its path or time.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// The fingerprint in checkpoints without a run id: of 16 blocks of 4 KiB.
  [[nodiscard]] std::uint64_t old_fingerprint() const;

 private:
  void open_megatron(bool indexed);
  void open_llmc();
  void open_raw(TokenType type);
  void open_mask();
  void open_ends();

  io::InputFile file_;
  std::string index_path_;  ///< of a Megatron file
  config::TokenFormat format_;
  TokenType type_ = TokenType::uint16;
  std::int64_t vocab_size_;
  std::int64_t header_bytes_ = 0;
  std::int64_t tokens_ = 0;
  std::optional<io::InputFile> mask_;
  std::optional<Sidecar> sidecar_;
  std::unique_ptr<const DocumentEnds> ends_;
};

/// Path of the mask of the token file at `path`.
[[nodiscard]] std::string mask_path(const std::string& path);

/// "uint16", "megatron", ...: the word of `data.format`.
[[nodiscard]] std::string_view format_name(config::TokenFormat format);

}  // namespace trireme::data
