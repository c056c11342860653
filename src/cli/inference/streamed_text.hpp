// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {

/// Streams the text of a prompt and of the following tokens. The streamed parts together are the text of all tokens,
/// without a stop string; characters whose bytes are in several tokens are returned once complete. The cost per token
/// is independent of the text's length: only the tokens since the last whole character are decoded, after those of the
/// previous character.
class StreamedText {
 public:
  /// tokenizer: outlives it. stops: not part of the result.
  StreamedText(const tokenizer::Tokenizer& tokenizer, std::vector<std::int32_t> prompt, std::vector<std::string> stops);

  /// Adds a token; returns text that can be printed now, without the beginning of a possible stop string.
  [[nodiscard]] std::string add(std::int32_t token);
  /// Whether the text after the prompt holds a stop string.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// The remaining text after the last token.
  [[nodiscard]] std::string rest();

 private:
  [[nodiscard]] std::string decoded(std::span<const std::int32_t> ids, bool from_start) const;
  [[nodiscard]] bool may_complete(std::int32_t token) const;
  void take(std::string_view text);
  [[nodiscard]] std::string up_to(std::size_t end);

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::int32_t> anchor_;  ///< precedes tokens that are not the first, whose blank some decoders strip
  std::vector<std::int32_t> ids_;     ///< the last tokens whose text is taken, then those whose text is not whole yet
  std::size_t taken_;                 ///< number of them that are taken
  bool from_start_ = true;            ///< ids_ begin with the text's first token
  std::string taken_text_;            ///< text of these, from `decoded`
  std::vector<std::string> stops_;
  std::string text_;  ///< of all tokens that are taken
  std::size_t prompt_bytes_;
  std::size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace trireme::cli
