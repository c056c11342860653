// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>
#include <string>

#include "trireme/base/error.hpp"

/// Damages small valid inputs, reproducibly, and judges what their readers make of them.
namespace trireme::test {

/// Whether everything is tried instead of a random part (tests/run.sh --long).
inline bool tries_everything() { return std::getenv("TRIREME_TEST_LONG") != nullptr; }

/// TRIREME_TEST_SEED, or another one in every run.
inline std::uint64_t fuzz_seed() {
  if (const char* given = std::getenv("TRIREME_TEST_SEED")) return std::strtoull(given, nullptr, 10);
  static const std::uint64_t drawn = std::random_device{}();
  return drawn;
}

class Mutation {
 public:
  explicit Mutation(std::uint64_t seed) : random_(seed) {}

  std::size_t below(std::size_t count) { return count == 0 ? 0 : random_() % count; }

  /// `bytes` after one to four mistakes.
  std::string of(std::string bytes) {
    for (std::size_t i = 1 + below(4); i > 0; --i) mutate(bytes);
    return bytes;
  }

 private:
  void mutate(std::string& bytes) {
    static const std::array<std::string, 22> junk{"0",
                                                  "-1",
                                                  "1e309",
                                                  "nan",
                                                  "18446744073709551615",
                                                  "9223372036854775808",
                                                  "4294967296",
                                                  "\"\"",
                                                  "null",
                                                  "true",
                                                  "[]",
                                                  "{}",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  ",",
                                                  std::string(1, '\0'),
                                                  "\xff\xfe",
                                                  "\xf0\x9f\x98\x80",
                                                  "\x1b[2J",
                                                  std::string(3000, '['),
                                                  std::string(70'000, 'a')};
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 1 + below(64)) + 1);
    switch (below(9)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        return;
      case 2: bytes.resize(at); return;
      case 3: bytes.erase(at, length); return;
      case 4: bytes.insert(below(bytes.size() + 1), bytes.substr(at, length)); return;
      case 5: bytes.insert(at, junk[below(junk.size())]); return;
      case 6: bytes.append(below(5000), static_cast<char>(below(256))); return;
      case 7:
        if (bytes.size() > 8)  // a little-endian number of another size
          for (std::size_t i = 0, first = at % (bytes.size() - 8); i < 8; ++i)
            bytes[first + i] = static_cast<char>(i < 4 ? below(256) : 255 * below(2));
        return;
      default: replace_number(bytes, at, junk[below(7)]);
    }
  }

  /// The first decimal number from `at` on.
  static void replace_number(std::string& bytes, std::size_t at, const std::string& other) {
    const std::size_t begin = bytes.find_first_of("0123456789", at);
    if (begin == std::string::npos) return;
    bytes.replace(begin, std::min(bytes.find_first_not_of("0123456789.", begin), bytes.size()) - begin, other);
  }

  std::mt19937_64 random_;
};

inline double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Gives damaged `samples` to `read` for `seconds`: each is taken, or refused by an error with a message that is not
/// a bug's; soon, and in little memory. Prints how many.
template <class Read>
void fuzz(const std::string& format, const std::vector<std::string>& samples, double seconds, Read&& read) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const std::uint64_t seed = fuzz_seed();
  int taken = 0, refused = 0;
  for (const std::string& sample : samples) read(sample);  // as they are they are taken
  const auto wrong = [&](std::uint64_t trial, const std::string& bytes, const std::string& what) {
    const auto kept =
        std::filesystem::temp_directory_path() / fmt::format("trireme-fuzz-{}-{}-{}", format, seed, trial);
    std::ofstream(kept, std::ios::binary) << bytes;
    ADD_FAILURE() << format << ", seed " << seed << ", input " << trial << " (" << kept << "): " << what;
  };
  for (std::uint64_t trial = 0; std::chrono::steady_clock::now() < end; ++trial) {
    Mutation mutation(seed * 0x9E3779B97F4A7C15ULL + trial);
    const std::string bytes = mutation.of(samples[mutation.below(samples.size())]);
    const double begin = processor_seconds();
    try {
      read(bytes);
      ++taken;
    } catch (const BugError& error) {
      wrong(trial, bytes, error.what());
    } catch (const Error& error) {
      ++refused;
      if (std::string(error.what()).empty()) wrong(trial, bytes, "no message");
    } catch (const std::bad_alloc&) {
      wrong(trial, bytes, "out of memory");
    } catch (const std::exception& error) {
      wrong(trial, bytes, std::string("not an error of ours: ") + error.what());
    }
    if (const double took = processor_seconds() - begin; took > 10) wrong(trial, bytes, fmt::format("took {} s", took));
    if (testing::Test::HasFailure()) break;
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  EXPECT_LT(used.ru_maxrss, 3 << 20) << "KiB of memory after " << format;
  fmt::print("fuzz {}: seed {}, {} inputs, {} taken, {} refused\n", format, seed, taken + refused, taken, refused);
  EXPECT_GT(refused, 0) << format << ": nothing was refused";
}

}  // namespace trireme::test
