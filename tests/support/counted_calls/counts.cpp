// SPDX-License-Identifier: Apache-2.0
#include "counts.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>

namespace counted {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, std::array<std::int64_t, 2>> of;
};

/// Never destroyed: static destructors of the program may still open files.
Counts& counts() {
  static auto* const all = new Counts;
  return *all;
}

/// The most memory that this process held, in bytes.
std::int64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::strtoll(line.c_str() + 6, nullptr, 10);
  return 0;
}

}  // namespace

void add(const std::string& what, std::int64_t bytes) {
  const std::lock_guard lock(counts().mutex);
  auto& [calls, sum] = counts().of[what];
  ++calls;
  sum += bytes;
}

void write(int rank) {
  const char* const directory = std::getenv("COUNTS");
  if (directory == nullptr) return;
  add("memory resident", peak_memory());
  add("memory objects", heap_peak());
  std::string text = "{";
  {
    const std::lock_guard lock(counts().mutex);
    for (const auto& [what, numbers] : counts().of)
      text += (text.size() > 1 ? ",\n\"" : "\n\"") + what + "\": [" + std::to_string(numbers[0]) + ", " +
              std::to_string(numbers[1]) + "]";
  }
  text += "\n}\n";
  const std::string path = std::string(directory) + "/rank-" + std::to_string(rank) + ".json";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr || std::fputs(text.c_str(), file) < 0 || std::fclose(file) != 0) std::abort();
}

}  // namespace counted
