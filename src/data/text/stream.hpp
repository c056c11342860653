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
#include "trireme/data/text/xxh3.hpp"

namespace trireme::data::text {

/// Makes bytes of compressed ones.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  /// Takes bytes from the front of `in`, writes to `out`, and returns how many it wrote; both may be fewer than there
  /// are. Throws DataError for bytes that are not of its format.
  virtual std::size_t run(std::span<const char>& in, std::span<char> out) = 0;
  /// Whether the bytes so far are a complete file.
  [[nodiscard]] virtual bool complete() const = 0;
};

/// Members one after another, as gzip and pigz write them. `name` begins messages.
[[nodiscard]] std::unique_ptr<Decompressor> make_gzip(const std::string& name);
/// Frames one after another.
[[nodiscard]] std::unique_ptr<Decompressor> make_zstd(const std::string& name);

/// The lines of an uncompressed file that begin at one of the bytes [begin, end).
struct LineRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Whether `bytes`, the first of a file, begin gzip or zstd data.
[[nodiscard]] bool is_compressed(std::string_view bytes);

/// A file or pipe read from front to back; gzip and zstd, known by their first bytes, are decompressed on the way.
class Stream {
 public:
  /// "-" is standard input. Throws DataError as io::InputFile does.
  explicit Stream(const std::string& path);
  /// Reads some lines of a file; `consumed` counts their bytes, and there is no hash.
  Stream(const std::string& path, LineRange lines);

  /// Fills `out`, or as much as remains of the file; returns the bytes, 0 at the end. Throws DataError when reading
  /// fails or compressed data are damaged or end too early.
  [[nodiscard]] std::size_t read(std::span<char> out);
  /// "text file web.jsonl.gz".
  [[nodiscard]] std::string name() const;
  /// Bytes of the file read so far, before decompression.
  [[nodiscard]] std::int64_t consumed() const noexcept { return consumed_; }
  /// The hash of those bytes.
  [[nodiscard]] std::string xxh3() const { return hash_.hex(); }

 private:
  void refill();
  void refill_lines();

  io::InputFile file_;
  bool standard_input_;
  std::vector<char> buffer_;
  std::span<const char> ready_;  ///< of the buffer, not yet taken
  bool ended_ = false;
  std::int64_t consumed_ = 0;
  Xxh3 hash_;
  std::unique_ptr<Decompressor> decompressor_;  ///< of a compressed file
  std::optional<LineRange> lines_;              ///< absent: the whole file
  std::int64_t next_ = 0;                       ///< byte of the file that is read next, of lines
  bool within_line_ = false;                    ///< that byte is of a line that begins before the first one
};

}  // namespace trireme::data::text
