// SPDX-License-Identifier: Apache-2.0
#include "data/text/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"

namespace trireme::data::text {
namespace {

using namespace std::string_view_literals;

/// A format that is not text, with its first bytes and a tool that converts it to text.
struct Format {
  std::string_view magic;
  std::string_view name;
  std::string_view remedy;
};
constexpr std::array formats{
    Format{"\x1f\x8b"sv, "compressed by gzip twice", "zcat FILE | trireme tokenize ... -"},
    Format{"\xfd"
           "7zXZ\0"sv,
           "compressed by xz", "xzcat FILE | trireme tokenize ... -"},
    Format{"BZh"sv, "compressed by bzip2", "bzcat FILE | trireme tokenize ... -"},
    Format{"PK\x03\x04"sv, "a zip archive", "unzip it"},
    Format{"PAR1"sv, "a Parquet table",
           "python3 -c \"import pandas; pandas.read_parquet('FILE', columns=['text']).to_json('FILE.jsonl', "
           "orient='records', "
           "lines=True, force_ascii=False)\" (pip install pandas pyarrow), then --field text"},
    Format{"%PDF-"sv, "a PDF", "pdftotext FILE"},
    Format{"\xff\xfe"sv, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
    Format{"\xfe\xff"sv, "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"},
};

/// Whether the first two lines, or the only one, are JSON objects.
bool is_json_lines(std::string_view bytes) {
  for (int line = 0; line < 2; ++line) {
    const std::size_t end = bytes.find('\n');
    const std::string_view text = bytes.substr(0, end);
    if (!text.starts_with('{') || !nlohmann::json::accept(text)) return false;
    if (end == std::string_view::npos || end + 1 == bytes.size()) return true;
    bytes.remove_prefix(end + 1);
  }
  return true;
}

/// Finds the first syntax error of JSON, also at its end.
struct FirstError : nlohmann::json_sax<nlohmann::json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return ++strings > 0; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return ++strings > 0; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    at = position;
    return false;
  }
  std::size_t at = 0;
  std::int64_t strings = 0;  ///< keys, too
};

/// Whether the bytes are an object or a list of JSON with strings in it, or the beginning of one.
bool is_json(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (bytes[first] != '{' && bytes[first] != '[')) return false;
  FirstError found;
  const bool whole = nlohmann::json::sax_parse(bytes, &found);
  return found.strings > 0 && (whole || found.at > bytes.size());
}

}  // namespace

std::string TextCheck::kind_of(std::string_view bytes) {
  constexpr std::size_t least = 16;  // fewer could be tokens by chance
  for (const auto& [magic, name, remedy] : formats)
    if (magic.size() > 2 && bytes.starts_with(magic)) return std::string(name);
  if (bytes.starts_with("\x1f\x8b\x08"sv)) return "compressed by gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd"sv)) return "compressed by zstd";
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f';
  };
  if (bytes.size() < least || std::ranges::any_of(bytes, control)) return "";
  TextCheck check("");
  check.count_invalid(bytes);
  if (check.invalid_ > 0) return "";
  return bytes.starts_with('{') ? "JSON lines" : "plain text";
}

void TextCheck::check_format(std::string_view bytes) const {
  for (const auto& [magic, name, remedy] : formats)
    if (bytes.starts_with(magic))
      throw DataError(fmt::format("{} is {}, not text; make text of it first: {}", name_, name, remedy));
}

void TextCheck::look_at_beginning(std::string_view bytes) const {
  check_format(bytes);
  if (json_) return;
  if (is_json_lines(bytes))
    throw DataError(
        fmt::format("{} holds JSON lines, not plain text: field names and escapes would become tokens; name the field "
                    "that holds the text: --field text, or take the file as it is: --plain",
                    name_));
  if (is_json(bytes))
    throw DataError(
        fmt::format("{} is JSON, not plain text: field names and escapes would become tokens; write its texts to files "
                    "first, as with jq -r '.[].text' FILE, or take the file as it is: --plain",
                    name_));
}

void TextCheck::invalid(std::int64_t at) {
  if (invalid_++ == 0) first_invalid_ = at;
  missing_ = 0;
  low_ = 0x80;
  high_ = 0xBF;
}

/// The ranges of Unicode 15, table 3-7.
void TextCheck::count_invalid(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const std::int64_t at = bytes_ + static_cast<std::int64_t>(i);
    if (missing_ > 0) {
      if (byte >= low_ && byte <= high_) {
        --missing_;
        low_ = 0x80;
        high_ = 0xBF;
        continue;
      }
      invalid(begun_);  // this byte may begin another
    }
    if (byte < 0x80) {
      if (byte == 0)
        throw DataError(fmt::format("{} has a zero byte at {}: it is binary, not text; check the path", name_, at));
      continue;
    }
    if (byte < 0xC2 || byte > 0xF4) {
      invalid(at);
      continue;
    }
    begun_ = at;
    missing_ = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  }
}

void TextCheck::add(std::string_view bytes) {
  if (bytes_ == 0) look_at_beginning(bytes);
  count_invalid(bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size());
  constexpr std::int64_t a_few = 16;
  if (invalid_ > std::max(a_few, bytes_ / 1000))
    throw DataError(fmt::format(
        "{} is not UTF-8: {} characters of its first {} bytes are invalid, the first at byte {}; convert it, as "
        "with iconv -f LATIN1 -t UTF-8, or check the path",
        name_, invalid_, bytes_, first_invalid_));
}

void TextCheck::finish() {
  if (missing_ > 0) invalid(begun_);
  if (invalid_ > 0)
    log::warning(fmt::format("{}: {} {} no UTF-8, the first at byte {}; all tokenizers but bytes read U+FFFD there",
                             name_, invalid_, invalid_ == 1 ? "character is" : "characters are", first_invalid_));
}

}  // namespace trireme::data::text
