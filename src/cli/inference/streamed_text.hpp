// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {

/// The text of a prompt and of tokens that follow it one by one, shown as it comes, up to a stop string.
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
  [[nodiscard]] std::string up_to(std::size_t end);

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::vector<std::string> stops_;
  std::string text_;
  std::size_t prompt_bytes_;
  std::size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace trireme::cli
