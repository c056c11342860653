// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Actual destination of an output path of the user; symbolic links are followed.
struct Destination {
  std::string path;      ///< without links
  bool replaced = true;  ///< a regular file, or none yet: a new file is renamed over it. Else a device or a pipe, which
                         ///< is opened and written
};
/// Throws WriteError if `path` is a directory or a socket, or cannot be looked at.
[[nodiscard]] Destination destination_of(const std::string& path);

/// Renames `from` to `to` if that is a regular file, a symbolic link or nothing. Throws WriteError.
void rename_over(const std::string& from, const std::string& to);

/// Removes the temporary file `path`: a file, the link itself, a FIFO, a socket. Throws WriteError if it is a directory
/// or a device, or cannot be removed.
void remove_leftover(const std::string& path);

/// Whether both names lead to one file or directory (device and inode).
[[nodiscard]] bool same_file(const std::string& one, const std::string& other);

/// Throws ConfigError if `output` is one of `inputs`, of which some may be empty or missing. command: for the
/// message, "report".
void check_output_is_no_input(std::string_view command, const std::string& output, std::span<const std::string> inputs);

/// A model's directory and the files in it that are read: weights, JSON, tokenizers; `path` alone if it is a file.
[[nodiscard]] std::vector<std::string> files_of_model(const std::string& path);

}  // namespace trireme::io
