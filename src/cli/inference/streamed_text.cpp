// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/streamed_text.hpp"

#include <algorithm>
#include <bit>
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

/// Replacement of bytes that are not, or not yet, a character.
constexpr std::string_view replacement = "\ufffd";

}  // namespace

StreamedText::StreamedText(const tokenizer::Tokenizer& tokenizer, std::vector<std::int32_t> prompt,
                           std::vector<std::string> stops)
    : tokenizer_(tokenizer),
      anchor_(tokenizer.encode("a")),
      ids_(std::move(prompt)),
      taken_(ids_.size()),
      taken_text_(tokenizer.decode(ids_)),
      stops_(std::move(stops)),
      text_(taken_text_),
      prompt_bytes_(text_.size()) {}

/// The text of tokens inside a longer text.
std::string StreamedText::decoded(std::span<const std::int32_t> ids, bool from_start) const {
  if (from_start) return tokenizer_.decode(ids);
  const std::string before = tokenizer_.decode(anchor_);
  std::vector<std::int32_t> behind = anchor_;
  behind.insert(behind.end(), ids.begin(), ids.end());
  const std::string all = tokenizer_.decode(behind);
  return all.starts_with(before) ? all.substr(before.size()) : tokenizer_.decode(ids);
}

/// Bytes that never become a character may be many: all of them are decoded again when a token is a whole character,
/// else whenever their number has doubled, so that the cost per token is constant.
bool StreamedText::may_complete(std::int32_t token) const {
  constexpr std::size_t always = 8;  // more than a character has bytes
  const std::size_t fresh = ids_.size() - taken_;
  return fresh <= always || std::has_single_bit(fresh) || !decoded({&token, 1}, false).ends_with(replacement);
}

std::string StreamedText::add(std::int32_t token) {
  ids_.push_back(token);
  if (may_complete(token)) {
    const std::string now = decoded(ids_, from_start_);
    const std::span fresh = std::span<const std::int32_t>(ids_).subspan(taken_);
    if (!now.ends_with(replacement)) {
      // A decoder may retract bytes because of later ones; printed text stays.
      take(now.starts_with(taken_text_) ? now.substr(taken_text_.size()) : decoded(fresh, false));
      if (!text_.empty()) {  // until then it may be the beginning that is stripped
        ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(taken_));
        from_start_ = false;
      }
      taken_ = ids_.size();
      taken_text_ = decoded(ids_, from_start_);
    }
  }
  if (stopped_) return up_to(text_.size());
  return up_to(text_.size() - held_back(std::string_view(text_).substr(prompt_bytes_), stops_));
}

std::string StreamedText::rest() {
  if (!stopped_ && ids_.size() > taken_) {
    const std::string now = decoded(ids_, from_start_);
    take(now.starts_with(taken_text_) ? now.substr(taken_text_.size())
                                      : decoded(std::span<const std::int32_t>(ids_).subspan(taken_), false));
    taken_ = ids_.size();
  }
  return up_to(text_.size());
}

/// Adds text, up to a stop string. Finds those that began in earlier text, but none that is inside it.
void StreamedText::take(std::string_view text) {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) longest = std::max(longest, stop.size());
  const std::size_t first = std::max(prompt_bytes_, text_.size() - std::min(text_.size(), longest));
  text_ += text;
  std::size_t end = text_.size();
  for (const std::string& stop : stops_) end = std::min(end, text_.find(stop, first));
  stopped_ = end < text_.size();
  text_.resize(end);
}

std::string StreamedText::up_to(std::size_t end) {
  if (end <= shown_) return {};
  const std::size_t begin = std::exchange(shown_, end);
  return text_.substr(begin, end - begin);
}

}  // namespace trireme::cli
