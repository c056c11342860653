// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

namespace trireme::io {

/// Makes a directory and its parents, each of them durable, since files in it are reached through their entries.
/// Returns the error if it could not be made. Throws WriteError when it cannot be flushed to disk.
[[nodiscard]] std::error_code make_directories(const std::string& directory);

/// Makes the directory that the file `path` will be in. Throws WriteError.
void make_directory_of(const std::string& path);

}  // namespace trireme::io
