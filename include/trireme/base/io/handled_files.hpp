// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <system_error>

namespace trireme::io {

/// Counts a file that a loop has looked at, opened or removed. Where no bytes move, a change of the count shows that
/// this process is at work. Any thread may call it.
void count_handled_file();

/// Files that were counted since the process began.
[[nodiscard]] std::int64_t handled_files();

/// Functions of std::filesystem, each call counted: on slow storage one may take seconds.
void remove_file(const std::filesystem::path& path, std::error_code& error);
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to, std::error_code& error);
void make_symlink(const std::filesystem::path& target, const std::filesystem::path& link, std::error_code& error);
void create_directories(const std::filesystem::path& path, std::error_code& error);

}  // namespace trireme::io
