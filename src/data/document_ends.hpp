// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "data/megatron_index.hpp"
#include "trireme/base/io/input_file.hpp"

namespace trireme::data {

/// The document ends of a token file, read from a file block by block: memory does not grow with their number.
class DocumentEnds {
 public:
  explicit DocumentEnds(std::int64_t documents) : documents_(documents) {}
  DocumentEnds(const DocumentEnds&) = delete;
  DocumentEnds& operator=(const DocumentEnds&) = delete;
  virtual ~DocumentEnds() = default;

  [[nodiscard]] std::int64_t documents() const noexcept { return documents_; }
  /// Fills `out` with the ends, in tokens, of documents from `document` on. Safe from several threads. Throws DataError
  /// when the file cannot be read or its ends fall.
  void read(std::int64_t document, std::span<std::int64_t> out) const;
  /// For each token from position `first` on: where its document begins, counted from `first`, 0 if that is earlier.
  /// Safe from several threads. Throws DataError as `read`.
  void begins(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  virtual void load(std::int64_t document, std::span<std::int64_t> out) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] std::int64_t last_end_of(std::int64_t block) const;
  [[nodiscard]] std::int64_t block_of(std::int64_t token) const;

  std::int64_t documents_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::int64_t> last_ends_;  ///< by block, of those that searches met first
};

/// The ends of FILE.ends.
[[nodiscard]] std::unique_ptr<DocumentEnds> open_ends_file(const std::string& path, std::int64_t documents);
/// The ends of a Megatron index.
[[nodiscard]] std::unique_ptr<DocumentEnds> open_index_ends(const std::string& index_path, const MegatronIndex& index);

/// Throws DataError, naming `path` of the token file, when the two differ in number or, in up to 64 blocks spread over
/// them, in an end.
void check_same_ends(const std::string& path, const DocumentEnds& ends, const DocumentEnds& index);

}  // namespace trireme::data
