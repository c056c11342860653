// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace trireme::data::text {

/// Checks a text file before it is tokenized: rejects other formats, and counts invalid UTF-8.
class TextCheck {
 public:
  /// `name` begins the messages: "text file book.txt". json: JSON is taken as plain text.
  explicit TextCheck(std::string name, bool json = false) : name_(std::move(name)), json_(json) {}

  /// Takes the next bytes of the file. Throws DataError when the file is compressed, JSON lines or another known
  /// format, holds a zero byte, or when more than one byte in a thousand, and more than 16, are no UTF-8.
  void add(std::string_view bytes);
  /// Kind of text, or of compressed text, that begins with `bytes`, such as "JSON lines"; "" for unknown kinds,
  /// such as tokens.
  [[nodiscard]] static std::string kind_of(std::string_view bytes);
  /// Throws DataError if `bytes`, the first of a file, begin a format that is not text, such as Parquet.
  void check_format(std::string_view bytes) const;
  /// After the last byte: warns of bytes that are no UTF-8.
  void finish();

 private:
  void look_at_beginning(std::string_view bytes) const;
  void count_invalid(std::string_view bytes);
  void invalid(std::int64_t at);

  std::string name_;
  bool json_;
  std::int64_t bytes_ = 0;
  std::int64_t invalid_ = 0;        ///< characters that are no UTF-8
  std::int64_t first_invalid_ = 0;  ///< index of the first invalid byte
  std::int64_t begun_ = 0;          ///< where the last character of several bytes began
  int missing_ = 0;                 ///< bytes of the character that has begun
  unsigned char low_ = 0x80;        ///< lower bound of its next byte
  unsigned char high_ = 0xBF;
};

}  // namespace trireme::data::text
