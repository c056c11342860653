// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/validation_sets.hpp"

#include <algorithm>
#include <iterator>

namespace trireme::config {

std::vector<std::string> set_names(const std::vector<TokenSource>& files) {
  std::vector<std::string> names;
  for (const TokenSource& file : files)
    if (std::ranges::find(names, file.set) == names.end()) names.push_back(file.set);
  return names;
}

std::vector<TokenSource> files_of_set(const std::vector<TokenSource>& files, const std::string& set) {
  std::vector<TokenSource> of_set;
  std::ranges::copy_if(files, std::back_inserter(of_set), [&](const TokenSource& file) { return file.set == set; });
  return of_set;
}

std::vector<std::string> validation_sets(const Data& data) { return set_names(data.validation); }

std::vector<TokenSource> validation_files(const Data& data, const std::string& set) {
  return files_of_set(data.validation, set);
}

}  // namespace trireme::config
