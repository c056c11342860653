// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/text/node.hpp"
#include "tokenizer/text/regex.hpp"
#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {

struct Normalize {
  NormalForm form;
};
struct Prepend {
  std::string text;
};
/// Every match of `pattern`, or of `literal` if there is none, becomes `content`.
struct Replace {
  std::optional<Regex> pattern;
  std::string literal;
  std::string content;
};
struct Strip {
  bool left;
  bool right;
};
struct LowerCase {};
/// GPT-2's printable characters for the bytes.
struct ByteCharacters {};

/// One normalizer of tokenizer.json; a Sequence becomes several.
using Normalizer = std::variant<Normalize, Prepend, Replace, Strip, LowerCase, ByteCharacters>;

/// Normalizers of `node`, which may be null. Throws DataError with the key of an unsupported one.
[[nodiscard]] std::vector<Normalizer> read_normalizers(const Node& node);
/// {"String": ...} or {"Regex": ...} at "pattern" and the text at "content".
[[nodiscard]] Replace read_replace(const Node& node);

[[nodiscard]] std::string replaced(const Replace& replace, std::string_view text);
/// `text` after all of them: itself or `storage`. begins: set to false if the first characters were removed, so that
/// the result begins after them; may be null.
[[nodiscard]] std::string_view normalized(const std::vector<Normalizer>& normalizers, std::string_view text,
                                          std::string& storage, bool* begins = nullptr);

}  // namespace trireme::tokenizer::hf
