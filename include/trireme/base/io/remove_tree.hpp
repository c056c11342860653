// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <system_error>

namespace trireme::io {

/// Removes `path` recursively, without following links. Each file counts as
/// progress (`handled_files`): on slow storage one may take seconds. error:
/// the first failure, after which the other files are still removed.
void remove_tree(const std::filesystem::path& path, std::error_code& error);

}  // namespace trireme::io
