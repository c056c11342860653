// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::schedule::testing {

/// The lines of a printed schedule that name a stage of `block` ("b0"), in order.
inline std::string ops_of(const std::string& text, const std::string& block) {
  std::string found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    if (line.find(" " + block + ".") != std::string::npos) found += line + "\n";
    begin = end + 1;
  }
  return found;
}

}  // namespace trireme::schedule::testing
