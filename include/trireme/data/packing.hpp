// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data/token_file.hpp"

namespace trireme::data {

/// Documents in a row of a file that are packed together.
inline constexpr std::int64_t packing_window = 4096;

/// Tokens of one document in a row.
struct TokenRange {
  std::int64_t begin = 0;  ///< in the file
  std::int64_t tokens = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

/// Counts of packed documents.
struct PackingCounts {
  std::int64_t documents = 0;
  std::int64_t rows = 0;
  std::int64_t tokens = 0;            ///< in rows; where a document is cut, the last one of a row also begins the next
  std::int64_t padding = 0;           ///< positions of rows without a token
  std::int64_t cut = 0;               ///< documents in more than one row
  std::int64_t without_target = 0;    ///< documents of fewer than 2 tokens, which are in no row
  std::int64_t concatenated_cut = 0;  ///< documents that data.packing = "concatenate" divides among samples
  /// Shares of all positions, and of all documents.
  [[nodiscard]] double padding_share() const;
  [[nodiscard]] double cut_share() const;
  [[nodiscard]] double concatenated_cut_share() const;
  PackingCounts& operator+=(const PackingCounts& other);
  friend bool operator==(const PackingCounts&, const PackingCounts&) = default;
};

/// The documents of a window in rows of seq_len + 1 tokens, by best-fit decreasing ("Fewer truncations improve language
/// modeling", Ding et al., ICML 2024): from the longest to the shortest, each goes to the row with the least space that
/// it fits in, else to a new one. Of a longer document each seq_len tokens and the token after them fill a row; its
/// rest, which begins with that token, is packed. Every target but the first token of a document is in one row. Rows
/// are in the order of their first tokens in the file, and so are the documents of a row.
class PackedWindow {
 public:
  /// begin: first token of the first document. ends: of the documents, rising.
  PackedWindow(std::int64_t begin, std::span<const std::int64_t> ends, std::int64_t seq_len);

  [[nodiscard]] const PackingCounts& counts() const noexcept { return counts_; }
  /// Documents of row `row` of [0, counts().rows).
  [[nodiscard]] std::vector<TokenRange> row(std::int64_t row) const;

 private:
  /// Rows of a long document, or one row of several documents.
  struct Segment {
    std::int64_t begin = 0;  ///< first token
    std::int64_t rows = 1;
    std::int64_t first_row = 0;
    std::int32_t first_range = 0;
    std::int32_t ranges = 0;  ///< 0: rows of a long document
  };
  void pack(std::span<const TokenRange> pieces);

  std::int64_t seq_len_;
  PackingCounts counts_;
  std::vector<Segment> segments_;
  std::vector<TokenRange> ranges_;
};

/// Where the rows of a file's windows begin: 8 bytes for each 4,096 documents. Rows themselves are computed when they
/// are read. Depends on document ends and seq_len alone.
struct PackingPlan {
  std::vector<std::int64_t> first_rows{0};  ///< [windows + 1]
  PackingCounts counts;
  friend bool operator==(const PackingPlan&, const PackingPlan&) = default;
};

/// The plan of a file, computed by up to 16 threads from its document ends. Throws DataError when they cannot be read;
/// BugError if it has none.
[[nodiscard]] PackingPlan plan_packing(const TokenFile& file, std::int64_t seq_len);

/// Plans as text, to be broadcast, and back.
[[nodiscard]] std::string encode(std::span<const PackingPlan> plans);
[[nodiscard]] std::vector<PackingPlan> decode_plans(const std::string& text);

/// Rows of packed files. Keeps recently read windows.
class PackedRows {
 public:
  /// plans: of the files. most_windows: number of windows that are kept, of about 100 KB each.
  PackedRows(std::vector<PackingPlan> plans, std::int64_t seq_len, std::size_t most_windows);

  [[nodiscard]] const std::vector<PackingPlan>& plans() const noexcept { return plans_; }
  /// Documents of row `row` of file number `number`, which is `file`. Safe from several threads. Throws DataError when
  /// the document ends cannot be read or are not those of the plan.
  [[nodiscard]] std::vector<TokenRange> row(const TokenFile& file, std::size_t number, std::int64_t row) const;

 private:
  using Key = std::pair<std::size_t, std::int64_t>;  ///< file, window
  [[nodiscard]] std::shared_ptr<const PackedWindow> window(const TokenFile& file, const Key& key) const;

  std::vector<PackingPlan> plans_;
  std::int64_t seq_len_;
  std::size_t most_windows_;
  struct Kept {
    std::shared_ptr<const PackedWindow> window;
    std::uint64_t used = 0;
  };
  mutable std::mutex mutex_;
  mutable std::map<Key, Kept> kept_;
  mutable std::uint64_t uses_ = 0;
};

}  // namespace trireme::data
