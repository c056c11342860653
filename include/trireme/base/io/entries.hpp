// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace trireme::io {

/// The paths in `directory`, unordered. error: set if the listing may be incomplete; the range-for over
/// std::filesystem::directory_iterator throws where its first step reports.
[[nodiscard]] std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory,
                                                            std::error_code& error);

}  // namespace trireme::io
