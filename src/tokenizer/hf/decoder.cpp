// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/decoder.hpp"

#include <charconv>

#include "tokenizer/text/utf8.hpp"
#include "trireme/base/text.hpp"

namespace trireme::tokenizer::hf {
namespace {

using Tokens = std::vector<std::string>;

void apply(const DecodeByteLevel&, Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) {
    const std::size_t before = all.size();
    for (std::size_t at = 0; at < token.size();) {
      const CodePoint point = code_point_at(token, at);
      const int byte = byte_of_character(point.value);
      if (byte < 0) {  // an added token that is no byte-level one: unchanged
        all.resize(before);
        all += token;
        break;
      }
      all += static_cast<char>(byte);
      at += point.bytes;
    }
  }
  std::string storage;
  tokens = {std::string(valid_utf8(all, storage))};
}

/// The byte that a token such as <0x41> names, or -1.
int named_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return -1;
  int byte = -1;
  const char* end = token.data() + 5;
  const auto [stopped, error] = std::from_chars(token.data() + 3, end, byte, 16);
  return error == std::errc() && stopped == end ? byte : -1;
}

void apply(const DecodeByteFallback&, Tokens& tokens) {
  Tokens result;
  std::string bytes;
  const auto flush = [&] {
    std::string storage;
    if (valid_utf8(bytes, storage).data() == bytes.data()) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) result.emplace_back("\ufffd");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = named_byte(token); byte >= 0) {
      bytes += static_cast<char>(byte);
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(result);
}

void apply(const Fuse&, Tokens& tokens) { tokens = {join(tokens, "")}; }

void apply(const StripEnds& strip, Tokens& tokens) {
  const std::string content = utf8(strip.content);
  for (std::string& token : tokens) {
    for (std::int64_t i = 0; i < strip.start && token.starts_with(content); ++i) token.erase(0, content.size());
    for (std::int64_t i = 0; i < strip.stop && token.ends_with(content); ++i)
      token.resize(token.size() - content.size());
  }
}

std::string with_each(std::string_view text, std::string_view from, std::string_view to) {
  return replaced(Replace{std::nullopt, std::string(from), std::string(to)}, text);
}

void apply(const DecodeMetaspace& metaspace, Tokens& tokens) {
  const std::string replacement = utf8(metaspace.replacement);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = with_each(tokens[i], replacement, i == 0 && metaspace.in_front ? "" : " ");
}

void apply(const DecodeSuffix& suffix, Tokens& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = with_each(tokens[i], suffix.suffix, i + 1 == tokens.size() ? "" : " ");
}

void apply(const Replace& replace, Tokens& tokens) {
  for (std::string& token : tokens) token = replaced(replace, token);
}

}  // namespace

std::vector<Decoder> read_decoders(const Node& node) {
  if (node.is_null()) return {};
  const std::string type = node.text("type", "");
  if (type == "Sequence") {
    std::vector<Decoder> all;
    for (const Node& item : node["decoders"].items())
      for (Decoder& decoder : read_decoders(item)) all.push_back(std::move(decoder));
    return all;
  }
  if (type == "ByteLevel") return {DecodeByteLevel{}};
  if (type == "ByteFallback") return {DecodeByteFallback{}};
  if (type == "Fuse") return {Fuse{}};
  if (type == "Replace") return {read_replace(node)};
  if (type == "Strip") return {StripEnds{node.character("content"), node.whole("start"), node.whole("stop")}};
  if (type == "Metaspace") {
    const std::string scheme = node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
    return {DecodeMetaspace{node.character("replacement"), scheme != "never"}};
  }
  if (type == "BPEDecoder") return {DecodeSuffix{node.text("suffix")}};
  node.refuse_type("Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and BPEDecoder");
}

std::string decoded(const std::vector<Decoder>& decoders, std::vector<std::string> tokens) {
  if (decoders.empty()) return join(tokens, " ");
  for (const Decoder& decoder : decoders) std::visit([&](const auto& each) { apply(each, tokens); }, decoder);
  return join(tokens, "");
}

}  // namespace trireme::tokenizer::hf
