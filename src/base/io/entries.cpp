// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/entries.hpp"

namespace trireme::io {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const fs::path& directory, std::error_code& error) {
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    paths.push_back(it->path());
  return paths;
}

}  // namespace trireme::io
