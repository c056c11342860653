// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/temporary_directory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data::test {

using trireme::test::TemporaryDirectory;

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

/// `count` tokens that identify their file and position: first + i, below 50,000.
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
