// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tokenizer/text/node.hpp"
#include "tokenizer/text/regex.hpp"

namespace trireme::tokenizer::hf {

/// Treatment of the matches that a text is split at.
enum class Behavior : std::uint8_t { isolated, removed, contiguous, merged_with_previous, merged_with_next };

/// At every match of `pattern`, or of `literal` if there is none. `inverted`: at the text between matches.
struct SplitAtPattern {
  std::optional<Regex> pattern;
  std::string literal;
  Behavior behavior;
  bool inverted;
};
/// At every character of a kind.
struct SplitAtCharacters {
  bool (*is_one)(char32_t);
  Behavior behavior;
};
/// \w+|[^\w\s]+ of Rust's regular expressions.
struct Words {};
/// Replaces blanks by `replacement` and prepends one.
struct Metaspace {
  enum class Scheme : std::uint8_t { always, first, never };
  std::string replacement;
  Scheme scheme;
  bool splits;
};
/// Prepends a blank, unless there is one.
struct PrefixSpace {};
/// GPT-2's printable characters for the bytes.
struct BytesToCharacters {};

using PreTokenizer = std::variant<SplitAtPattern, SplitAtCharacters, Words, Metaspace, PrefixSpace, BytesToCharacters>;

/// The pre-tokenizer of tokenizer.json as steps.
struct PreTokenizers {
  std::vector<PreTokenizer> steps;
  /// The last step is byte-level: its pieces are the bytes themselves, and BytesToCharacters is not among the steps.
  bool bytes = false;
};

/// A text and its pieces, which the model encodes separately.
struct Pieces {
  std::string_view text;
  std::string storage;  ///< of a text that is not the one given
  std::vector<Range> ranges;
  bool begins = false;  ///< the first range is the beginning of all text
  std::string other_storage;
  std::vector<Range> other_ranges;
};

/// `node` may be null. Throws DataError with the key of an unsupported component.
[[nodiscard]] PreTokenizers read_pre_tokenizers(const Node& node);
/// Splits `text`; `begins`: nothing is before it.
void pre_tokenize(const PreTokenizers& pre_tokenizers, std::string_view text, bool begins, Pieces& pieces);

}  // namespace trireme::tokenizer::hf
