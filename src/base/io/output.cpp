// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/output.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/io/try_again.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/handled_files.hpp"
#include "trireme/base/io/regular_file.hpp"

namespace trireme::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void not_written(const std::string& path, int error) {
  const std::string_view remedy = error == EISDIR                       ? "name a file in it"
                                  : error == ENAMETOOLONG               ? remedy_of_long_name
                                  : error == ENOENT || error == ENOTDIR ? std::string_view("create its directory first")
                                                                        : std::string_view("choose another name");
  throw WriteError(fmt::format("cannot write {}: {}; {}", path, std::strerror(error), remedy));
}

/// Final target of links whose file does not exist yet.
std::string end_of_links(std::string path) {
  constexpr int most_links = 40;  // as in the kernel
  for (int i = 0; i < most_links; ++i) {
    std::error_code none;
    const fs::path target = fs::read_symlink(path, none);
    if (none) return path;
    path = (fs::path(path).parent_path() / target).string();
  }
  not_written(path, ELOOP);
}

struct stat looked_at(const std::string& path, int (*look)(const char*, struct stat*), int& error) {
  struct stat status {};
  error = last_error([&] { return look(path.c_str(), &status) == 0; });
  return status;
}

}  // namespace

Destination destination_of(const std::string& path) {
  int error = 0;
  const struct stat status = looked_at(
      path, [](const char* name, struct stat* to) { return ::stat(name, to); }, error);
  if (error == ENOENT) return {.path = end_of_links(path)};
  if (error != 0) not_written(path, error);
  if (S_ISDIR(status.st_mode)) not_written(path, EISDIR);
  if (S_ISSOCK(status.st_mode))
    throw WriteError(fmt::format("cannot write {}: it is a socket; choose another name", path));
  if (!S_ISREG(status.st_mode)) return {.path = path, .replaced = false};
  std::error_code not_a_link;
  if (!fs::is_symlink(fs::symlink_status(path, not_a_link))) return {.path = path};
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (!real || !same_file(real.get(), path)) return {.path = path, .replaced = false};  // /dev/fd/3 of a removed file
  return {.path = real.get()};
}

void rename_over(const std::string& from, const std::string& to) {
  int error = 0;
  const struct stat status = looked_at(
      to, [](const char* name, struct stat* out) { return ::lstat(name, out); }, error);
  if (error != 0 && error != ENOENT) not_written(to, error);
  if (error == 0 && S_ISDIR(status.st_mode)) not_written(to, EISDIR);
  if (error == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
    throw WriteError(fmt::format("cannot write {}: it is not a regular file; move it away", to));
  const int failed = ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
  count_handled_file();
  if (failed != 0) not_written(to, failed);
}

void remove_leftover(const std::string& path) {
  int error = 0;
  const struct stat status = looked_at(
      path, [](const char* name, struct stat* out) { return ::lstat(name, out); }, error);
  if (error == ENOENT) return;
  if (error != 0) not_written(path, error);
  if (S_ISDIR(status.st_mode) || S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode))
    throw WriteError(fmt::format("cannot write {}: it is a {}; remove it, the name is a temporary file's", path,
                                 S_ISDIR(status.st_mode) ? "directory" : "device"));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw WriteError(fmt::format("cannot remove {}, which an earlier process left: {}; remove it by hand", path,
                                 std::strerror(errno)));
  count_handled_file();
}

bool same_file(const std::string& one, const std::string& other) {
  struct stat first {
  }, second{};
  return !one.empty() && !other.empty() && ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

void check_output_is_no_input(std::string_view command, const std::string& output,
                              std::span<const std::string> inputs) {
  struct stat status {};
  // A terminal, /dev/null or a pipe may be both.
  if (::stat(output.c_str(), &status) != 0 || (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))) return;
  for (const std::string& input : inputs)
    if (same_file(input, output))
      throw ConfigError(fmt::format("{} would replace its own input {}{}; choose another output", command, input,
                                    input == output ? "" : fmt::format(" (as {})", output)));
}

std::vector<std::string> files_of_model(const std::string& path) {
  constexpr std::array read = {".json", ".safetensors", ".model", ".h5", ".jinja", ".txt"};
  std::vector<std::string> files{path};
  for (const fs::path& folder : {fs::path(path), fs::path(path) / "shards"}) {
    std::error_code none;
    for (const fs::path& entry : entries_of(folder, none))
      if (entry.filename() == "COMMIT" || std::ranges::find(read, entry.extension().string()) != read.end())
        files.push_back(entry.string());
  }
  return files;
}

}  // namespace trireme::io
