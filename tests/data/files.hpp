// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data::test {

/// A directory of its own for a test, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trireme-data-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }

  [[nodiscard]] std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Names of the files in it, sorted.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

template <class T>
void append_bytes(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class Stored>
std::string stored(std::span<const std::int32_t> tokens) {
  std::string bytes;
  for (const std::int32_t token : tokens) append_bytes(bytes, static_cast<Stored>(token));
  return bytes;
}

/// A raw uint16 file of `tokens`.
inline std::string write_tokens(const std::string& path, const std::vector<std::int32_t>& tokens) {
  write_file(path, stored<std::uint16_t>(tokens));
  return path;
}

/// `count` tokens that tell their file and position: first + i, below 50,000.
inline std::vector<std::int32_t> counting(std::int32_t first, std::int64_t count) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((first + i) % 50000));
  return tokens;
}

/// Runs `action`, which must throw an Error of `code`, and returns its message.
template <class Action>
std::string error_of(ExitCode code, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

/// Expects every one of `parts` in `message`.
inline void expect_parts(const std::string& message, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
}

/// Collects the warnings logged while it lives.
class Warnings {
 public:
  Warnings() {
    previous_ = log::set_sink([this](log::Level level, std::string_view line) {
      if (level == log::Level::warning) lines.emplace_back(line);
    });
  }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  ~Warnings() { log::set_sink(previous_); }
  std::vector<std::string> lines;

 private:
  log::Sink previous_;
};

}  // namespace trireme::data::test
