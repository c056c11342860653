// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/pre_tokenizer.hpp"
#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// GPT-2's pattern (Radford et al. 2019), the default of ByteLevel.
constexpr auto gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Behavior read_behavior(const Node& node, std::string fallback) {
  const std::string name = node.text("behavior", std::move(fallback));
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "Contiguous") return Behavior::contiguous;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  node["behavior"].refuse("is not supported");
}

SplitAtPattern read_split(const Node& node) {
  const Node pattern = node["pattern"];
  SplitAtPattern split{.pattern = std::nullopt,
                       .literal = pattern.text("String", ""),
                       .behavior = read_behavior(node, "?"),
                       .inverted = node.flag("invert", false)};
  if (!pattern["Regex"].is_null()) {
    split.pattern.emplace(pattern.text("Regex"), pattern["Regex"].where());
  } else if (split.literal.empty()) {
    pattern.refuse("is neither {\"String\": ...} nor {\"Regex\": ...}");
  }
  return split;
}

Metaspace read_metaspace(const Node& node) {
  Metaspace metaspace{.replacement = utf8(node.character("replacement")),
                      .scheme = Metaspace::Scheme::always,
                      .splits = node.flag("split", true)};
  // Older files have a flag in place of the scheme.
  const std::string scheme = node.text("prepend_scheme", node.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "first") {
    metaspace.scheme = Metaspace::Scheme::first;
  } else if (scheme == "never") {
    metaspace.scheme = Metaspace::Scheme::never;
  } else if (scheme != "always") {
    node["prepend_scheme"].refuse("is not supported");
  }
  return metaspace;
}

void read_into(const Node& node, PreTokenizers& all) {
  if (all.bytes) {  // more follows: the bytes become characters after all
    all.bytes = false;
    all.steps.emplace_back(BytesToCharacters{});
  }
  const std::string type = node.text("type", "");
  if (type == "Sequence") {
    for (const Node& item : node["pretokenizers"].items()) read_into(item, all);
  } else if (type == "ByteLevel") {
    if (node.flag("add_prefix_space", true)) all.steps.emplace_back(PrefixSpace{});
    if (node.flag("use_regex", true))
      all.steps.emplace_back(SplitAtPattern{Regex(gpt2_pattern, node.where()), "", Behavior::isolated, false});
    all.bytes = true;
  } else if (type == "Split") {
    all.steps.emplace_back(read_split(node));
  } else if (type == "Metaspace") {
    all.steps.emplace_back(read_metaspace(node));
  } else if (type == "Digits") {
    const bool single = node.flag("individual_digits", false);
    all.steps.emplace_back(SplitAtCharacters{&is_numeric, single ? Behavior::isolated : Behavior::contiguous});
  } else if (type == "Punctuation") {
    all.steps.emplace_back(SplitAtCharacters{&is_punctuation, read_behavior(node, "Isolated")});
  } else if (type == "WhitespaceSplit") {
    all.steps.emplace_back(SplitAtCharacters{&is_white_space, Behavior::removed});
  } else if (type == "Whitespace") {
    all.steps.emplace_back(Words{});
  } else if (type == "CharDelimiterSplit") {
    all.steps.emplace_back(SplitAtPattern{std::nullopt, utf8(node.character("delimiter")), Behavior::removed, false});
  } else {
    node.refuse_type(
        "Sequence, ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit and "
        "CharDelimiterSplit");
  }
}

}  // namespace

PreTokenizers read_pre_tokenizers(const Node& node) {
  PreTokenizers all;
  if (!node.is_null()) read_into(node, all);
  return all;
}

}  // namespace trireme::tokenizer::hf
