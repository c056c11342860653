// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/handled_files.hpp"

#include <atomic>

namespace trireme::io {
namespace {

std::atomic<std::int64_t> handled = 0;

}  // namespace

void count_handled_file() { ++handled; }

std::int64_t handled_files() { return handled; }

namespace fs = std::filesystem;

void remove_file(const fs::path& path, std::error_code& error) {
  fs::remove(path, error);
  count_handled_file();
}

void rename_file(const fs::path& from, const fs::path& to, std::error_code& error) {
  fs::rename(from, to, error);
  count_handled_file();
}

void make_symlink(const fs::path& target, const fs::path& link, std::error_code& error) {
  fs::create_symlink(target, link, error);
  count_handled_file();
}

void create_directories(const fs::path& path, std::error_code& error) {
  fs::create_directories(path, error);
  count_handled_file();
}

}  // namespace trireme::io
