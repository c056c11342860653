// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/streamed_text.hpp"

#include <algorithm>
#include <utility>

namespace trireme::cli {
namespace {

/// Bytes at the end of `text` that a stop string may begin with.
std::size_t held_back(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t most = 0;
  for (const std::string& stop : stops)
    for (std::size_t length = std::min(stop.size(), text.size()); length > most; --length)
      if (text.ends_with(std::string_view(stop).substr(0, length))) most = length;
  return most;
}

}  // namespace

StreamedText::StreamedText(const tokenizer::Tokenizer& tokenizer, std::vector<std::int32_t> prompt,
                           std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      ids_(std::move(prompt)),
      stops_(std::move(stops)),
      text_(tokenizer.decode(ids_)),
      prompt_bytes_(text_.size()) {}

std::string StreamedText::add(std::int32_t token) {
  ids_.push_back(token);
  text_ = tokenizer_.decode(ids_);
  std::size_t end = text_.size();
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, prompt_bytes_));
  if (end < text_.size()) {
    stopped_ = true;
    text_.resize(end);
    return up_to(end);
  }
  const std::string_view added = std::string_view(text_).substr(std::min(prompt_bytes_, text_.size()));
  return up_to(text_.size() - held_back(added, stops_));
}

std::string StreamedText::rest() { return up_to(text_.size()); }

std::string StreamedText::up_to(std::size_t end) {
  if (end <= shown_) return {};
  const std::size_t begin = std::exchange(shown_, end);
  return text_.substr(begin, end - begin);
}

}  // namespace trireme::cli
