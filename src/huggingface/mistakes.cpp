// SPDX-License-Identifier: Apache-2.0
#include "huggingface/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::huggingface {

namespace {

constexpr std::size_t most_lines = 40;

}  // namespace

void raise(const Mistakes& mistakes, std::string_view heading) {
  const std::vector<std::string>& messages = mistakes.messages();
  if (messages.empty()) return;
  std::string text(heading);
  for (std::size_t i = 0; i < std::min(messages.size(), most_lines); ++i) text += "\n  " + messages[i];
  if (messages.size() > most_lines) text += fmt::format("\n  and {} more", messages.size() - most_lines);
  throw CheckpointError(text);
}

}  // namespace trireme::huggingface
