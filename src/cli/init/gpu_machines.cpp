// SPDX-License-Identifier: Apache-2.0
#include "cli/init/gpu_machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::cli {
namespace {

/// "NVIDIA A100-SXM4-40GB": its words in lower case.
std::set<std::string> words_of(std::string_view gpu) {
  std::set<std::string> words;
  std::string word;
  for (const char c : gpu) {
    if (c != ' ' && c != '-') {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    words.insert(std::exchange(word, {}));
  }
  words.insert(word);
  return words;
}

}  // namespace

std::string shipped_machine_of(std::string_view gpu, Bytes memory) {
  constexpr Bytes half_an_a100{std::int64_t{60} << 30};
  const std::set<std::string> words = words_of(gpu);
  const bool other_links = words.contains("pcie") || words.contains("nvl");  // and another clock
  for (const char* name : {"gh200", "h200", "h100", "a100"}) {
    if (!words.contains(name) || other_links) continue;
    return name == std::string_view("a100") && memory.value < half_an_a100.value ? "a100-40gb" : name;
  }
  throw ConfigError(fmt::format(
      "this machine has a GPU \"{}\" ({}), which no shipped machine file describes; give --machine with the "
      "name of one that comes near (`trireme plan --help` lists them) or a file of your own, which `trireme "
      "doctor --measure` writes",
      gpu, to_text(memory)));
}

}  // namespace trireme::cli
