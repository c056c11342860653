// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "trireme/planner/time/machine.hpp"

namespace trireme::planner {
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

std::optional<GpuMachine> machine_of_gpu(std::string_view gpu, Bytes memory) {
  constexpr Bytes half_an_a100{std::int64_t{60} << 30};
  const std::set<std::string> words = words_of(gpu);
  const bool other_links = words.contains("pcie") || words.contains("nvl");  // and another clock
  for (const char* name : {"gh200", "h200", "h100", "a100"}) {
    if (!words.contains(name)) continue;
    const bool half = name == std::string_view("a100") && memory.value < half_an_a100.value;
    return GpuMachine{.name = half ? "a100-40gb" : name, .same = !other_links};
  }
  return std::nullopt;
}

Machine machine_of(std::string_view gpu, Bytes memory) {
  if (gpu.empty()) return load_machine("local");
  const std::optional<GpuMachine> found = machine_of_gpu(gpu, memory);
  return load_machine(found ? found->name : "h100");
}

}  // namespace trireme::planner
