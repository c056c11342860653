// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data {

/// The tokens at the end of a file that do not fill a sample. padded: a last sample whose missing tokens are 0 and
/// whose missing targets do not count.
enum class FileTail { dropped, padded };

/// Token files one after the other as samples of seq_len + 1 tokens. A file of t tokens holds floor((t - 1) / seq_len)
/// samples, with padded tails ceil((t - 1) / seq_len); the last token of a sample is the first of the next one; samples
/// never cross files.
class Dataset {
 public:
  /// Throws DataError when no file is long enough for one sample; warns of single files that are too short.
  Dataset(std::vector<TokenFile> files, std::int64_t seq_len, FileTail tail = FileTail::dropped);

  [[nodiscard]] std::int64_t samples() const noexcept { return first_sample_.back(); }
  /// Tokens in all files, those of no sample included.
  [[nodiscard]] std::int64_t tokens() const noexcept;
  [[nodiscard]] std::int64_t seq_len() const noexcept { return seq_len_; }
  [[nodiscard]] const std::vector<TokenFile>& files() const noexcept { return files_; }

  /// Reads sample `sample` of [0, samples()) into `out`: [seq_len + 1]. Safe from several threads. Throws DataError as
  /// TokenFile::read.
  void read(std::int64_t sample, std::span<std::int32_t> out) const;
  /// Whether any of its files has a mask of targets.
  [[nodiscard]] bool masked() const noexcept;
  /// Whether the last sample of any file is padded.
  [[nodiscard]] bool padded() const noexcept;
  /// Fills `out` with 1 if a target of sample `sample` counts, else 0: [seq_len]. Throws DataError as
  /// TokenFile::read_mask.
  void read_mask(std::int64_t sample, std::span<std::uint8_t> out) const;
  /// Writes the document begin of each input of sample `sample`: [seq_len], counted from the sample's first token, 0 if
  /// it is earlier. From the file's document ends; in a file without them a document ends with each token
  /// `document_end` of `tokens`, the result of `read`. Throws DataError as TokenFile::read_document_begins.
  void read_document_begins(std::int64_t sample, std::span<const std::int32_t> tokens,
                            std::optional<std::int64_t> document_end, std::span<std::int32_t> out) const;

 private:
  struct Place {
    const TokenFile& file;
    std::int64_t first;  ///< token
  };
  [[nodiscard]] Place place_of(std::int64_t sample) const;
  [[nodiscard]] std::int64_t samples_of(const TokenFile& file) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_sample_;  ///< [files + 1]
  std::int64_t seq_len_;
  FileTail tail_;
};

/// Opens a list of the run file: one dataset of all files in turn, or, when `weighted`, one per file to be mixed by
/// weight. places: of the sources, if they have been found already. Throws DataError as TokenFile and Dataset do.
[[nodiscard]] std::vector<Dataset> open_datasets(const std::vector<config::TokenSource>& sources, bool weighted,
                                                 config::TokenFormat format, std::int64_t seq_len,
                                                 std::int64_t vocab_size, std::span<const TokenPlace> places = {},
                                                 FileTail tail = FileTail::dropped);

}  // namespace trireme::data
