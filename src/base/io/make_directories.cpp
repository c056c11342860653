// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/make_directories.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/io/handled_files.hpp"

namespace trireme::io {

std::error_code make_directories(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<fs::path> parents;
  for (fs::path path = fs::absolute(directory, error); path.has_relative_path() && !fs::exists(path, error);
       path = path.parent_path())
    if (path.has_filename()) parents.push_back(path.parent_path());
  create_directories(directory, error);
  if (error) return error;
  for (const fs::path& parent : parents) sync_directory(parent.string());
  return {};
}

void make_directory_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (directory.empty()) return;
  if (const std::error_code error = make_directories(directory))
    throw WriteError(
        fmt::format("cannot write {}: its directory cannot be made: {}; choose another one", path, error.message()));
}

}  // namespace trireme::io
