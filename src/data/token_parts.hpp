// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text_to_tokens.hpp"

/// Text files divided among ranks: units, each tokenized by one rank into a part, a file of encoded documents. Parts in
/// the order of their units are the documents in the order of the files.
namespace trireme::data {

/// A text file as it is before it is tokenized.
struct TextFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t changed = 0;  ///< modification time, in nanoseconds
  bool compressed = false;
  std::string xxh3 = {};  ///< of its bytes; empty: not known yet
  friend bool operator==(const TextFile&, const TextFile&) = default;
};

/// Sizes and times of regular files, by up to 16 threads. formats: also reads their first bytes, to find compressed
/// ones. Throws DataError for one that is missing, no regular file or cannot be read.
[[nodiscard]] std::vector<TextFile> look_at_files(const std::vector<std::string>& paths, bool formats);

/// A list of files as text, to be broadcast, and back.
[[nodiscard]] std::string encode(const std::vector<TextFile>& files);
[[nodiscard]] std::vector<TextFile> decode_files(const std::string& text);

/// The work on a file that one rank does.
struct TextUnit {
  enum class Kind : std::uint8_t {
    whole,  ///< tokenizes and hashes whole files
    lines,  ///< tokenizes the lines that begin in [begin, end)
    hash    ///< hashes a file whose lines are in several units
  };
  std::size_t file = 0;
  Kind kind = Kind::whole;
  std::int64_t begin = 0;
  std::int64_t end = 0;   ///< of whole files: the sum of their bytes
  std::size_t files = 1;  ///< whole files from `file` on
};

/// Bytes of a unit of lines, by the bytes of all files: at most about 512 units, of 512 KiB to 64 MiB.
[[nodiscard]] std::int64_t bytes_of_unit(std::int64_t all_bytes);

/// The units of `files`, in order. Larger uncompressed files of JSON lines (by_lines) are divided; others stay whole,
/// as many in a unit as have `unit_bytes` of work together, at most 1,024. Does not depend on ranks.
[[nodiscard]] std::vector<TextUnit> units_of(const std::vector<TextFile>& files, bool by_lines,
                                             std::int64_t unit_bytes);

/// Work of a unit in bytes of text; a byte of a compressed file counts as four.
[[nodiscard]] std::int64_t work_of(const TextUnit& unit, const std::vector<TextFile>& files);

/// The rank of each of `units`: in descending order of work, each goes to the rank with the least work so far.
[[nodiscard]] std::vector<int> assign(const std::vector<TextUnit>& units, const std::vector<TextFile>& files,
                                      int ranks);

/// Parts of one set of files, tokenizer and options in a directory.
class TokenParts {
 public:
  /// identity: of tokenizer and options: parts of another one are not reused.
  TokenParts(std::string directory, const std::string& identity, const std::vector<TextFile>& files,
             std::int64_t vocab_size)
      : directory_(std::move(directory)), identity_(identity), files_(files), narrow_(vocab_size <= 65536) {}

  /// Whether the part of unit number `number` is complete, of the file as it is.
  [[nodiscard]] bool is_complete(std::size_t number, const TextUnit& unit) const;
  /// Tokenizes a unit into its part. advanced: called with the bytes of its files read so far; may throw. Throws
  /// DataError as Documents and TextReader, and if the file has changed since it was looked at; WriteError.
  void write(std::size_t number, const TextUnit& unit, const tokenizer::Tokenizer& tokenizer,
             const TokenizeOptions& options, const std::function<void(std::int64_t)>& advanced) const;
  /// Hands the encoded documents of a part to `take`, in order. Returns the hashes of its files, none for lines of one.
  /// Throws DataError if the part is damaged.
  std::vector<std::string> read(std::size_t number, const TextUnit& unit,
                                const std::function<void(const Encoded&)>& take) const;

 private:
  [[nodiscard]] std::string path_of(std::size_t number) const;
  [[nodiscard]] std::string name_of(const TextUnit& unit) const;
  /// Tokenizes whole files one after the other; returns their hashes, a line for each.
  [[nodiscard]] std::string write_files(const TextUnit& unit, const TextReader& reader,
                                        const std::function<void(std::int64_t)>& advanced) const;

  std::string directory_;
  std::string identity_;
  const std::vector<TextFile>& files_;
  bool narrow_;  ///< ids are stored in two bytes
};

/// The hash of a file's bytes. advanced: called with the bytes read so far.
[[nodiscard]] std::string hash_of_file(const std::string& path, const std::function<void(std::int64_t)>& advanced);

}  // namespace trireme::data
