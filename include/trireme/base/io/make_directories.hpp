// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

namespace trireme::io {

/// Makes a directory and those above it, each of them durable: what is written in it is reached through their entries.
/// Returns why it is not there. Throws WriteError when it cannot be flushed to disk.
[[nodiscard]] std::error_code make_directories(const std::string& directory);

/// Makes the directory that the file `path` will be in. Throws WriteError.
void make_directory_of(const std::string& path);

}  // namespace trireme::io
