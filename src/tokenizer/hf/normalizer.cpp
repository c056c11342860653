// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/normalizer.hpp"

namespace trireme::tokenizer::hf {
namespace {

std::string apply(const Normalize& normalize, std::string_view text) { return normal_form(text, normalize.form); }

std::string apply(const Prepend& prepend, std::string_view text) {
  return text.empty() ? std::string() : prepend.text + std::string(text);
}

std::string apply(const Replace& replace, std::string_view text) { return replaced(replace, text); }

std::string apply(const Strip& strip, std::string_view text) {
  while (strip.left && !text.empty()) {
    const CodePoint first = code_point_at(text, 0);
    if (!is_white_space(first.value)) break;
    text.remove_prefix(first.bytes);
  }
  while (strip.right && !text.empty()) {
    const CodePoint last = code_point_before(text, text.size());
    if (!is_white_space(last.value)) break;
    text.remove_suffix(last.bytes);
  }
  return std::string(text);
}

std::string apply(const LowerCase&, std::string_view text) { return lower_case(text); }

std::string apply(const ByteCharacters&, std::string_view text) {
  std::string characters;
  for (const char byte : text) append_utf8(characters, byte_character(static_cast<unsigned char>(byte)));
  return characters;
}

template <class Step>
bool removes_first(const Step&, std::string_view) {
  return false;
}

bool removes_first(const Strip& strip, std::string_view text) {
  return strip.left && !text.empty() && is_white_space(code_point_at(text, 0).value);
}

bool removes_first(const Replace& replace, std::string_view text) {
  if (!replace.content.empty()) return false;
  if (!replace.pattern) return text.starts_with(replace.literal);
  const auto found = replace.pattern->find(text, 0);
  return found && found->begin == 0 && found->end > 0;
}

}  // namespace

Replace read_replace(const Node& node) {
  const Node pattern = node["pattern"];
  Replace replace{.pattern = std::nullopt, .literal = pattern.text("String", ""), .content = node.text("content")};
  if (!pattern["Regex"].is_null()) {
    replace.pattern.emplace(pattern.text("Regex"), pattern["Regex"].where());
  } else if (replace.literal.empty()) {
    pattern.refuse("is neither {\"String\": ...} nor {\"Regex\": ...}");
  }
  return replace;
}

std::vector<Normalizer> read_normalizers(const Node& node) {
  if (node.is_null()) return {};
  const std::string type = node.text("type", "");
  if (type == "Sequence") {
    std::vector<Normalizer> all;
    for (const Node& item : node["normalizers"].items())
      for (Normalizer& normalizer : read_normalizers(item)) all.push_back(std::move(normalizer));
    return all;
  }
  if (type == "NFC") return {Normalize{NormalForm::nfc}};
  if (type == "NFD") return {Normalize{NormalForm::nfd}};
  if (type == "NFKC") return {Normalize{NormalForm::nfkc}};
  if (type == "NFKD") return {Normalize{NormalForm::nfkd}};
  if (type == "Prepend") return {Prepend{node.text("prepend")}};
  if (type == "Replace") return {read_replace(node)};
  if (type == "Strip") return {Strip{node.flag("strip_left", true), node.flag("strip_right", true)}};
  if (type == "Lowercase") return {LowerCase{}};
  if (type == "ByteLevel") return {ByteCharacters{}};
  node.refuse_type("Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, Lowercase and ByteLevel");
}

std::string replaced(const Replace& replace, std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  std::size_t copied = 0;
  std::size_t from = 0;
  while (from <= text.size()) {
    Range match;
    if (replace.pattern) {
      const auto found = replace.pattern->find(text, from);
      if (!found) break;
      match = *found;
    } else {
      const std::size_t at = text.find(replace.literal, from);
      if (at == std::string_view::npos) break;
      match = {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + replace.literal.size())};
    }
    result.append(text.substr(copied, match.begin - copied)).append(replace.content);
    copied = match.end;
    from = match.end;
    if (match.begin == match.end) from += from < text.size() ? code_point_at(text, from).bytes : 1;
  }
  result.append(text.substr(copied));
  return result;
}

std::string_view normalized(const std::vector<Normalizer>& normalizers, std::string_view text, std::string& storage,
                            bool* begins) {
  for (const Normalizer& normalizer : normalizers) {
    if (begins != nullptr && std::visit([&](const auto& step) { return removes_first(step, text); }, normalizer))
      *begins = false;
    storage = std::visit([&](const auto& step) { return apply(step, text); }, normalizer);
    text = storage;
  }
  return text;
}

}  // namespace trireme::tokenizer::hf
