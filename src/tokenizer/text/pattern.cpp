// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/text/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace trireme::tokenizer::hf {
namespace {

using namespace std::string_view_literals;

// Contents of character classes, without brackets. PCRE2's \s also has U+180E, its \w lacks marks.
constexpr auto space = R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})"sv;
constexpr auto not_space =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff}\x{e000}-\x{10ffff})"sv;
constexpr auto word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})"sv;

constexpr std::array categories = {"C"sv,  "Cc"sv, "Cf"sv, "Cn"sv, "Co"sv, "Cs"sv, "L"sv,  "Ll"sv, "Lm"sv, "Lo"sv,
                                   "Lt"sv, "Lu"sv, "M"sv,  "Mc"sv, "Me"sv, "Mn"sv, "N"sv,  "Nd"sv, "Nl"sv, "No"sv,
                                   "P"sv,  "Pc"sv, "Pd"sv, "Pe"sv, "Pf"sv, "Pi"sv, "Po"sv, "Ps"sv, "S"sv,  "Sc"sv,
                                   "Sk"sv, "Sm"sv, "So"sv, "Z"sv,  "Zl"sv, "Zp"sv, "Zs"sv};

class Translation {
 public:
  explicit Translation(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    const bool caseless = take("(?i)");
    while (!rest_.empty()) element();
    return caseless ? "(?i)" + out_ : out_;
  }

 private:
  bool take(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  char take_one() {
    if (rest_.empty()) throw std::invalid_argument("it ends too early");
    const char one = rest_.front();
    rest_.remove_prefix(1);
    return one;
  }

  [[noreturn]] static void refuse(std::string_view construct) {
    throw std::invalid_argument(fmt::format("{} is not supported", construct));
  }

  void element() {
    if (rest_.starts_with('\\')) return escape(false);
    if (take("[")) return character_class();
    if (rest_.starts_with("(?")) return group();
    if (rest_.starts_with('{')) return interval();
    const char one = take_one();
    if (one == '^' || one == '$') refuse(fmt::format("{} (the edge of a line)", one));
    out_ += one;
  }

  void group() {
    for (const std::string_view known : {"(?:"sv, "(?="sv, "(?!"sv, "(?<="sv, "(?<!"sv, "(?>"sv, "(?i:"sv})
      if (take(known)) {
        out_ += known;
        return;
      }
    refuse(rest_.substr(0, 4));
  }

  /// {n}, {n,}, {,m} and {n,m}. A + after it repeats it there and makes it possessive here.
  void interval() {
    const std::size_t end = rest_.find('}');
    const std::string_view inside = rest_.substr(1, end == std::string_view::npos ? end : end - 1);
    const bool counts = end != std::string_view::npos && !inside.empty() && inside != "," &&
                        inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!counts) refuse("a literal {");
    rest_.remove_prefix(end + 1);
    if (rest_.starts_with('+') || (rest_.starts_with('?') && inside.find(',') == std::string_view::npos))
      refuse(fmt::format("{{{}}}{}", inside, rest_.front()));
    out_ += fmt::format("{{{}{}}}", inside.starts_with(',') ? "0" : "", inside);
  }

  void character_class() {
    out_ += '[';
    if (take("^")) out_ += '^';
    if (rest_.starts_with(']')) refuse("an empty class []");
    while (!take("]")) {
      if (rest_.starts_with('\\')) {
        escape(true);
      } else if (rest_.starts_with('[') || rest_.starts_with("&&")) {
        refuse(fmt::format("{} in a class", rest_.starts_with('[') ? "[" : "&&"));
      } else {
        out_ += take_one();
      }
    }
    out_ += ']';
  }

  /// A set of characters: unchanged in a class, in brackets outside.
  void set(std::string_view members, bool in_class, bool negated = false) {
    out_ += in_class ? std::string(members) : fmt::format("[{}{}]", negated ? "^" : "", members);
  }

  void escape(bool in_class) {
    take_one();
    const char kind = take_one();
    switch (kind) {
      case 's': return set(space, in_class);
      case 'S': return in_class ? set(not_space, true) : set(space, false, true);
      case 'w': return set(word, in_class);
      case 'W':
        if (in_class) refuse(R"(\W in a class)");
        return set(word, false, true);
      case 'd': out_ += R"(\p{Nd})"; return;
      case 'D': out_ += R"(\P{Nd})"; return;
      case 'p':
      case 'P': return property(kind == 'P');
      case 'u': return hexadecimal(4);
      case 'x':
        if (take("{")) return braced_hexadecimal();
        if (rest_ >= "8") refuse("a byte by \\x");
        return hexadecimal(2);
      case 'A':
      case 'z':
        if (in_class) break;
        [[fallthrough]];
      case 'n':
      case 'r':
      case 't':
      case 'f': out_ += fmt::format("\\{}", kind); return;
      case 'v': out_ += R"(\x{b})"; return;
      default: break;
    }
    const bool letter_or_digit =
        (kind >= '0' && kind <= '9') || (kind >= 'a' && kind <= 'z') || (kind >= 'A' && kind <= 'Z');
    if (letter_or_digit || static_cast<unsigned char>(kind) >= 0x80) refuse(fmt::format("\\{}", kind));
    out_ += fmt::format("\\{}", kind);
  }

  void hexadecimal(std::size_t digits) {
    const std::string_view number = rest_.substr(0, digits);
    if (number.size() < digits || number.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos)
      refuse("an escaped number without its digits");
    out_ += fmt::format("\\x{{{}}}", number);
    rest_.remove_prefix(digits);
  }

  void braced_hexadecimal() {
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos || end == 0) refuse("\\x{ without }");
    hexadecimal(end);
    rest_.remove_prefix(1);
  }

  void property(bool negated) {
    const std::size_t end = rest_.find('}');
    if (!take("{") || end == std::string_view::npos) refuse("\\p without {name}");
    std::string_view name = rest_.substr(0, end - 1);
    rest_.remove_prefix(end);
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      negated = !negated;
    }
    const bool is_category = std::ranges::find(categories, name) != categories.end();
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', is_category ? "" : "sc:", name);
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern) { return Translation(pattern).run(); }

}  // namespace trireme::tokenizer::hf
