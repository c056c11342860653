// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {

/// The text of a prompt and of the tokens behind it, shown as it comes. Together what is shown is the text of all
/// tokens, without a stop string; characters whose bytes come in several tokens are shown once they are whole. A token
/// costs the same however long the text is: only the tokens since the last whole character are decoded, behind those of
/// the character before.
class StreamedText {
 public:
  /// tokenizer: outlives it. stops: none of them is shown.
  StreamedText(const tokenizer::Tokenizer& tokenizer, std::vector<std::int32_t> prompt, std::vector<std::string> stops);

  /// Adds a token; returns what may be shown now: not yet what may become a stop string.
  [[nodiscard]] std::string add(std::int32_t token);
  /// Whether what follows the prompt holds a stop string.
  [[nodiscard]] bool stopped() const { return stopped_; }
  /// What is left to be shown when no more tokens come.
  [[nodiscard]] std::string rest();

 private:
  [[nodiscard]] std::string decoded(std::span<const std::int32_t> ids, bool from_start) const;
  [[nodiscard]] bool may_complete(std::int32_t token) const;
  void take(std::string_view text);
  [[nodiscard]] std::string up_to(std::size_t end);

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::int32_t> anchor_;  ///< stands before tokens that are not the text's first, which some decoders strip
  std::vector<std::int32_t> ids_;     ///< the last tokens whose text is taken, then those whose text is not whole yet
  std::size_t taken_;                 ///< how many of them are taken
  bool from_start_ = true;            ///< ids_ begin with the text's first token
  std::string taken_text_;            ///< theirs, as `decoded` gives it
  std::vector<std::string> stops_;
  std::string text_;  ///< of all tokens that are taken
  std::size_t prompt_bytes_;
  std::size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace trireme::cli
