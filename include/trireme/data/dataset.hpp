// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/data/packing.hpp"
#include "trireme/data/token_file.hpp"

namespace trireme::data {

/// The tokens at the end of a file that do not fill a sample. padded: a last sample whose missing tokens are 0 and
/// whose missing targets do not count.
enum class FileTail { dropped, padded };

/// Token files one after the other as samples of seq_len + 1 tokens. A file of t tokens holds floor((t - 1) / seq_len)
/// samples, with padded tails ceil((t - 1) / seq_len); the last token of a sample is the first of the next one; samples
/// never cross files. Packed files have the rows of their plans as samples, whose documents are followed by padding.
class Dataset {
 public:
  /// Throws DataError when no file is long enough for one sample; warns of single files that are too short.
  Dataset(std::vector<TokenFile> files, std::int64_t seq_len, FileTail tail = FileTail::dropped);
  /// Packed files. plans: of `files` with seq_len. most_windows: PackedRows. Throws DataError when no document of any
  /// file has a target; warns of single files without one.
  Dataset(std::vector<TokenFile> files, std::int64_t seq_len, std::vector<PackingPlan> plans, std::size_t most_windows);

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
  /// Whether samples may be padded: the last ones of files, or packed ones.
  [[nodiscard]] bool padded() const noexcept;
  /// Counts of its packed files; none if they are concatenated.
  [[nodiscard]] std::optional<PackingCounts> packing() const;
  /// Number of inputs of sample `sample` of documents, which come first; all in an unpacked one. Throws DataError as
  /// PackedRows::row.
  [[nodiscard]] std::int64_t inputs_of_documents(std::int64_t sample) const;
  /// Fills `out` with 1 if a target of sample `sample` counts, else 0: [seq_len]. Throws DataError as
  /// TokenFile::read_mask.
  void read_mask(std::int64_t sample, std::span<std::uint8_t> out) const;
  /// Writes the document begin of each input of sample `sample`: [seq_len], counted from the sample's first token, 0 if
  /// it is earlier; padding is another one. From the file's document ends; in a file without them a document
  /// ends with each token `document_end` of `tokens`, the result of `read`. Throws DataError as
  /// TokenFile::read_document_begins.
  void read_document_begins(std::int64_t sample, std::span<const std::int32_t> tokens,
                            std::optional<std::int64_t> document_end, std::span<std::int32_t> out) const;

 private:
  struct Place {
    const TokenFile& file;
    std::size_t number;   ///< of the file
    std::int64_t sample;  ///< in the file
    std::int64_t first;   ///< token, of an unpacked sample
  };
  [[nodiscard]] Place place_of(std::int64_t sample) const;
  [[nodiscard]] std::int64_t samples_of(std::size_t file) const;
  void count_samples();
  void refuse_few_tokens() const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> first_sample_;  ///< [files + 1]
  std::int64_t seq_len_;
  FileTail tail_;
  std::unique_ptr<const PackedRows> packed_;
};

/// The plan of each file of a list of the run file, in its order. places: of the sources, if they have been found
/// already. Throws ConfigError for a file whose document ends are unknown; DataError as TokenFile and plan_packing.
[[nodiscard]] std::vector<PackingPlan> plan_packing(const std::vector<config::TokenSource>& sources,
                                                    config::TokenFormat format, std::int64_t seq_len,
                                                    std::int64_t vocab_size, std::span<const TokenPlace> places = {});

/// Opens a list of the run file: one dataset of all files in turn, or, when `weighted`, one per file to be mixed by
/// weight. places: of the sources, if they have been found already. plans: of the sources, if they are packed. Throws
/// DataError as TokenFile and Dataset do.
[[nodiscard]] std::vector<Dataset> open_datasets(const std::vector<config::TokenSource>& sources, bool weighted,
                                                 config::TokenFormat format, std::int64_t seq_len,
                                                 std::int64_t vocab_size, std::span<const TokenPlace> places = {},
                                                 FileTail tail = FileTail::dropped,
                                                 std::span<const PackingPlan> plans = {});

}  // namespace trireme::data
