// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace trireme::huggingface {

/// A directory that appears as a whole: files are written to `.<name>.partial` next to it, which replaces it when it
/// is published and is removed when it is not.
class ExportDirectory {
 public:
  /// Throws CheckpointError when `directory` is in the way: not a directory, or not empty without `overwrite`, or with
  /// files that no export wrote, which are never deleted: weights of others, too.
  static void check(const std::string& directory, bool overwrite);

  /// Makes the temporary directory, empty. Throws WriteError, also while another process writes to it.
  explicit ExportDirectory(const std::string& directory);
  ExportDirectory(const ExportDirectory&) = delete;
  ExportDirectory& operator=(const ExportDirectory&) = delete;
  ~ExportDirectory();

  /// Temporary path of the file that will be `name`.
  [[nodiscard]] std::string file(const std::string& name) const { return (partial_ / name).string(); }
  /// Replaces the former directory, which stayed there until then: the two are exchanged in one step where
  /// the file system can (renameat2 with RENAME_EXCHANGE). Throws WriteError.
  void publish();

 private:
  void exchange() const;
  /// Locks the temporary directory, if it is there.
  void take_partial();

  std::filesystem::path final_;
  std::filesystem::path partial_;
  std::filesystem::path old_;  ///< the replaced directory, if the two cannot be exchanged
  int lock_ = -1;
  bool published_ = false;
};

}  // namespace trireme::huggingface
