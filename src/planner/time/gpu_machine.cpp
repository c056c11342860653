// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "trireme/base/text.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::planner {
namespace {

/// "NVIDIA A100-SXM4-40GB": its words in lower case.
std::set<std::string> words_of(std::string_view gpu) {
  std::set<std::string> words;
  std::string word;
  for (const char c : lowercase(gpu)) {
    if (c != ' ' && c != '-') {
      word += c;
      continue;
    }
    words.insert(std::exchange(word, {}));
  }
  words.insert(word);
  return words;
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Whether a text contains a word, ignoring case: "H100" in "8xh100_80gb" but not in "GH100"; "40" in "A100-40GB" but
/// not in "400W".
bool holds_word(std::string_view text, std::string_view word) {
  const std::string within = lowercase(text), wanted = lowercase(word);
  for (std::size_t at = within.find(wanted); at != std::string::npos; at = within.find(wanted, at + 1)) {
    const char before = at == 0 ? ' ' : within[at - 1];
    const std::size_t next = at + wanted.size();
    const bool begins = is_digit(wanted.front())
                            ? !is_digit(before)
                            : std::isalpha(static_cast<unsigned char>(before)) == 0 || before == 'x';
    const bool ends = next == within.size() || !is_digit(within[next]) || !is_digit(wanted.back());
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

std::optional<Machine> find_machine(const std::string& gpu) {
  std::optional<Machine> best;
  for (const ShippedMachine& shipped : shipped_machines()) {
    Machine machine = parse_machine(shipped.text, std::string(shipped.name) + ".toml");
    const auto named = [&](const std::string& word) { return holds_word(gpu, word); };
    const bool fits = !machine.gpus.empty() && std::all_of(machine.gpus.begin(), machine.gpus.end(), named);
    if (fits && (!best || machine.gpus.size() > best->gpus.size())) best = std::move(machine);
  }
  return best;
}

std::optional<GpuMachine> machine_of_gpu(std::string_view gpu, Bytes memory) {
  constexpr Bytes half_an_a100{std::int64_t{60} << 30};
  const std::set<std::string> words = words_of(gpu);
  const bool other_links = words.contains("pcie") || words.contains("nvl");  // and another clock
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  for (const auto& [name, least] : {std::pair{"gb300", 250 * gib}, {"gb200", 165 * gib}, {"b200", 160 * gib}})
    if (words.contains(name) && memory.value >= least)  // a part of one is another machine
      return GpuMachine{.name = name, .same = true};
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
