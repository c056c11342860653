// SPDX-License-Identifier: Apache-2.0
#include "trireme/huggingface/hub.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace trireme::huggingface {

std::string hub_download(std::string_view name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  };
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == name.size() || name.rfind('/') != slash ||
      name.starts_with('.') || !std::all_of(name.begin(), name.end(), allowed))
    return "";
  return fmt::format("; if it is a repository of the Hugging Face Hub: hf download {} --local-dir {}", name,
                     name.substr(slash + 1));
}

}  // namespace trireme::huggingface
