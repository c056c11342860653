// SPDX-License-Identifier: Apache-2.0
#include "data/text/inputs.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "trireme/base/error.hpp"

namespace trireme::data::text {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file()) {
      files.push_back(entry->path().string());
    }
  }
  if (error) throw DataError(fmt::format("cannot read the folder {}: {}", folder, error.message()));
  if (files.empty()) throw DataError(fmt::format("the folder {} holds no files", folder));
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> matches_of(const std::string& pattern) {
  glob_t found{};
  const int result = glob(pattern.c_str(), GLOB_BRACE | GLOB_TILDE, nullptr, &found);
  std::vector<std::string> files;
  if (result == 0) files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (files.empty()) throw DataError(fmt::format("no file matches {}", pattern));
  return files;
}

}  // namespace

std::vector<std::string> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code error;
    const bool exists = argument == "-" || fs::exists(argument, error);
    if (exists || argument.find_first_of("*?[{") == std::string::npos) {
      if (argument != "-" && fs::is_directory(argument, error)) {
        for (std::string& file : files_below(argument)) files.push_back(std::move(file));
      } else {
        files.push_back(argument);  // a missing file is reported when it is opened
      }
    } else {
      for (std::string& file : matches_of(argument)) files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace trireme::data::text
