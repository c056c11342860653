// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/remove_tree.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/handled_files.hpp"

namespace trireme::io {

namespace fs = std::filesystem;

namespace {

void keep_first(std::error_code& error, const std::error_code& failure) {
  if (!error && failure && failure != std::errc::no_such_file_or_directory) error = failure;
}

void remove_below(const fs::path& path, std::error_code& error) {
  std::error_code failure;
  const bool directory = fs::is_directory(fs::symlink_status(path, failure));
  if (directory) {
    const std::vector<fs::path> entries = entries_of(path, failure);
    keep_first(error, failure);
    for (const fs::path& entry : entries) remove_below(entry, error);
  }
  if (::unlinkat(AT_FDCWD, path.c_str(), directory ? AT_REMOVEDIR : 0) != 0)
    keep_first(error, {errno, std::generic_category()});
  count_handled_file();
}

}  // namespace

void remove_tree(const fs::path& path, std::error_code& error) {
  error.clear();
  remove_below(path, error);
}

}  // namespace trireme::io
