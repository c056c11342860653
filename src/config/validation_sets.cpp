// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/validation_sets.hpp"

#include <algorithm>
#include <iterator>

namespace trireme::config {

std::vector<std::string> validation_sets(const Data& data) {
  std::vector<std::string> names;
  for (const TokenSource& file : data.validation)
    if (std::ranges::find(names, file.set) == names.end()) names.push_back(file.set);
  return names;
}

std::vector<TokenSource> validation_files(const Data& data, const std::string& set) {
  std::vector<TokenSource> files;
  std::ranges::copy_if(data.validation, std::back_inserter(files),
                       [&](const TokenSource& file) { return file.set == set; });
  return files;
}

}  // namespace trireme::config
