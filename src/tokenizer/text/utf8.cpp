// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/utf8.hpp"

#include <utf8proc.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tokenizer/text/unicode_later.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// The bytes of the well-formed character at `at`, or 0; `bad` is then the length of the maximal ill-formed
/// subsequence. Unicode 15, table 3-7.
std::size_t well_formed(std::string_view text, std::size_t at, std::size_t& bad) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) {
      bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

/// End of the ASCII characters from `at` on, eight at a time.
std::size_t skip_ascii(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

utf8proc_category_t category(char32_t value) { return utf8proc_category(static_cast<utf8proc_int32_t>(value)); }

/// GPT-2's table: printable bytes map to themselves, all others to U+0100 and on in turn.
const std::array<char32_t, 256>& byte_characters() {
  static const auto table = [] {
    std::array<char32_t, 256> characters{};
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      characters[byte] = printable ? byte : next++;
    }
    return characters;
  }();
  return table;
}

/// Appends the normalization form of a text without a character that is normalized later.
void append_normal_form(std::string& out, std::string_view text, NormalForm form) {
  if (skip_ascii(text, 0) == text.size()) {
    out += text;
    return;
  }
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, &std::free);
  if (length < 0) throw DataError(std::string("utf8proc cannot normalize the text: ") + utf8proc_errmsg(length));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
}

}  // namespace

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return code_point_at(text, at);
}

void append_utf8(std::string& text, char32_t value) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

std::string utf8(char32_t value) {
  std::string text;
  append_utf8(text, value);
  return text;
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  std::size_t at = 0;
  std::size_t copied = 0;  // up to here `text` is in `storage`, once something was replaced
  bool replaced = false;
  while ((at = skip_ascii(text, at)) < text.size()) {
    std::size_t bad = 0;
    if (const std::size_t good = well_formed(text, at, bad); good > 0) {
      at += good;
      continue;
    }
    if (!replaced) storage.clear();
    replaced = true;
    storage.append(text.substr(copied, at - copied)).append("\ufffd");
    at += bad;
    copied = at;
  }
  if (!replaced) return text;
  storage.append(text.substr(copied));
  return storage;
}

bool is_white_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  return value == 0x85 || value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 ||
         value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

bool is_numeric(char32_t value) {
  if (value < 0x80) return value >= '0' && value <= '9';
  const auto kind = category(value);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t value) {
  if (value < 0x80) {
    return (value >= '0' && value <= '9') || (value >= 'a' && value <= 'z') || (value >= 'A' && value <= 'Z') ||
           value == '_';
  }
  if (value == 0x200C || value == 0x200D || (value >= 0x24B6 && value <= 0x24E9)) return true;
  if ((value >= 0x1F130 && value <= 0x1F149) || (value >= 0x1F150 && value <= 0x1F169)) return true;
  if (value >= 0x1F170 && value <= 0x1F189) return true;
  switch (category(value)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool is_punctuation(char32_t value) {
  if (value < 0x80) {
    return (value >= '!' && value <= '/') || (value >= ':' && value <= '@') || (value >= '[' && value <= '`') ||
           (value >= '{' && value <= '~');
  }
  if (value == 0x166D || value == 0x111C9) return true;  // no longer
  const auto kind = category(value);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && !is_punctuation_later(value);
}

std::string normal_form(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  std::size_t done = 0;
  for (std::size_t at = 0; (at = skip_ascii(text, at)) < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (is_normalized_later(point.value)) {  // nothing combines or moves over it
      append_normal_form(result, text.substr(done, at - done), form);
      result += text.substr(at, point.bytes);
      done = at + point.bytes;
    }
    at += point.bytes;
  }
  append_normal_form(result, text.substr(done), form);
  return result;
}

std::string lower_case(std::string_view text) {
  std::string lowered;
  lowered.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value == 0x130) {  // the one capital whose mapping is longer: i and a dot above
      lowered += "i\xcc\x87";
    } else {
      append_utf8(lowered, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point.value))));
    }
    at += point.bytes;
  }
  return lowered;
}

char32_t byte_character(unsigned char byte) { return byte_characters()[byte]; }

int byte_of_character(char32_t value) {
  static const auto inverse = [] {
    std::array<std::int16_t, 512> bytes{};
    bytes.fill(-1);
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[byte_characters()[byte]] = static_cast<std::int16_t>(byte);
    return bytes;
  }();
  return value < inverse.size() ? inverse[value] : -1;
}

}  // namespace trireme::tokenizer::hf
