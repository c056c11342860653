// SPDX-License-Identifier: Apache-2.0
#include "trireme/tokenizer/identity.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pcre2.h>
#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "trireme/base/build_info.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/tokenizer/library.hpp"

namespace trireme::tokenizer {
namespace {

/// Text whose ids depend on normalization, splitting of words and numbers, white space, and bytes beyond ASCII.
constexpr std::string_view fixed_text =
    "The quick brown fox jumps over the lazy dog, doesn't it? I'VE 1 22 333 4444 55555.\n"
    "  two  spaces\t tab\r\n\n\nThree lines; a_b-c/d:e=f(g)[h]{i}<j>|k&l*m+n%o$p#q@r!s~t^u`v\"w'x\n"
    "if (x != 0) { return f(y) * 1.5e-3; }  // 2026-11-28T01:23:45Z https://example.org/?q=1\n"
    "na\u00efve caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m \ufb01ne \u00bd \u2160 \uff21\u3000\u00a0\u2028"
    "\u0416\u0443\u043a \u03b1\u03b2\u03b3 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 "
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 "
    "\U0001f600\U0001f468\u200d\U0001f469 \U0001d54f \x01\x7f </s><|endoftext|> end";

std::string pcre2_version() {
  std::string version(static_cast<std::size_t>(pcre2_config(PCRE2_CONFIG_VERSION, nullptr)), '\0');
  pcre2_config(PCRE2_CONFIG_VERSION, version.data());
  return version.substr(0, version.find_first_of(std::string_view(" \0", 2)));
}

std::string_view sentencepiece_version() {
  for (const auto& [name, version] : build_info().libraries)
    if (name == "SentencePiece") return version;
  return "of unknown version";
}

/// Names and versions of "trireme 0.1.0, pcre2 10.42".
std::map<std::string_view, std::string_view> versions_in(std::string_view list) {
  std::map<std::string_view, std::string_view> versions;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(", "));
    list.remove_prefix(std::min(list.size(), item.size() + 2));
    const std::size_t blank = item.find(' ');
    if (blank != std::string_view::npos) versions[item.substr(0, blank)] = item.substr(blank + 1);
  }
  return versions;
}

template <class T>
void add_little_endian(Sha256& hash, T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> 8 * i & 0xff);
  hash.add(bytes);
}

}  // namespace

std::string library_of(const std::string& spec) {
  const std::string trireme = fmt::format("trireme {}", build_info().version);
  if (spec.starts_with("spm:")) return fmt::format("{}, sentencepiece {}", trireme, sentencepiece_version());
  if (spec.starts_with("hf:"))
    return fmt::format("{}, pcre2 {}, utf8proc {}", trireme, pcre2_version(), utf8proc_version());
  return trireme;
}

std::vector<std::string> other_versions(std::string_view made, std::string_view here) {
  std::vector<std::string> others;
  const auto now = versions_in(here);
  for (const auto& [name, version] : versions_in(made))
    if (const auto found = now.find(name); name != "trireme" && found != now.end() && found->second != version)
      others.push_back(fmt::format("{} {}, here {}", name, version, found->second));
  return others;
}

std::string vocabulary_fingerprint(const Tokenizer& tokenizer) {
  Sha256 hash;
  for (std::int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string piece = tokenizer.piece(static_cast<std::int32_t>(id));
    add_little_endian(hash, static_cast<std::uint64_t>(piece.size()));
    hash.add(piece);
  }
  for (const std::int32_t id : tokenizer.encode(fixed_text)) add_little_endian(hash, static_cast<std::uint32_t>(id));
  return hash.hex();
}

std::string difference(const std::string& known_spec, const Tokenizer& known, const std::string& other_spec,
                       const Tokenizer& other) {
  if (other.vocab_size() != known.vocab_size())
    return fmt::format("has {} ids instead of {}", other.vocab_size(), known.vocab_size());
  if (other.document_begin() != known.document_begin())
    return fmt::format("puts the tokens [{}] before a text instead of [{}]", fmt::join(other.document_begin(), ", "),
                       fmt::join(known.document_begin(), ", "));
  if (other.document_end() != known.document_end())
    return fmt::format("ends documents with token {} instead of {}", other.document_end(), known.document_end());
  const auto scheme = [](const std::string& spec) { return spec.substr(0, spec.find(':')); };
  const bool alike = scheme(known_spec) == scheme(other_spec);
  // Names of special tokens at its end are text for one scheme and tokens for another.
  const std::string_view text = alike ? fixed_text : fixed_text.substr(0, fixed_text.find("</s>"));
  if (other.encode(text) != known.encode(text)) return "encodes text to other ids";
  if (!alike || other.definition() == known.definition()) return "";
  return vocabulary_fingerprint(other) != vocabulary_fingerprint(known) ? "has other tokens"
                                                                        : "has other merges, scores or rules of text";
}

Identity identity_of(const std::string& spec, const Tokenizer& tokenizer) {
  return {.spec = spec,
          .fingerprint = vocabulary_fingerprint(tokenizer),
          .definition = tokenizer.definition(),
          .library = library_of(spec)};
}

}  // namespace trireme::tokenizer
