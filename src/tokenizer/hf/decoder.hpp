// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "tokenizer/hf/normalizer.hpp"
#include "tokenizer/text/node.hpp"

namespace trireme::tokenizer::hf {

/// GPT-2's printable characters back to bytes, all tokens as one text.
struct DecodeByteLevel {};
/// <0x41> becomes its byte; bytes that are no UTF-8 become U+FFFD each.
struct DecodeByteFallback {};
struct Fuse {};
/// Up to `start` and `stop` of a character leave the two ends of each token.
struct StripEnds {
  char32_t content;
  std::int64_t start;
  std::int64_t stop;
};
/// The replacement becomes a blank, or nothing in the first token where encoding put one in front.
struct DecodeMetaspace {
  char32_t replacement;
  bool in_front;
};
/// Replaces the suffix that marks the end of a word by a blank.
struct DecodeSuffix {
  std::string suffix;
};
using Decoder =
    std::variant<DecodeByteLevel, DecodeByteFallback, Fuse, StripEnds, DecodeMetaspace, DecodeSuffix, Replace>;

/// `node` may be null: tokens are then joined by blanks. Throws DataError with the key of an unsupported component.
[[nodiscard]] std::vector<Decoder> read_decoders(const Node& node);
[[nodiscard]] std::string decoded(const std::vector<Decoder>& decoders, std::vector<std::string> tokens);

}  // namespace trireme::tokenizer::hf
