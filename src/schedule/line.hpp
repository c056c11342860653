// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// The words of one line, taken from the left.
class Line {
 public:
  Line(std::string_view text, int number, const model::Model& model) : text_(text), number_(number), model_(model) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find(' ', at), text.size());
      if (end > at) words_.push_back(text.substr(at, end - at));
      at = end + 1;
    }
  }

  [[noreturn]] void expected(std::string_view what) const {
    throw ConfigError(fmt::format("schedule line {} `{}`: expected {}", number_, text_, what));
  }
  [[nodiscard]] bool done() const { return next_ == words_.size(); }
  bool take_if(std::string_view word) {
    if (done() || words_[next_] != word) return false;
    ++next_;
    return true;
  }
  std::string_view take(std::string_view what) {
    if (done()) expected(what);
    return words_[next_++];
  }
  void take_word(std::string_view word) {
    if (!take_if(word)) expected(word);
  }
  int number(std::string_view digits, std::string_view what) const {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < 0) expected(what);
    return value;
  }
  std::int64_t bytes() {
    const std::string_view word = take("a number of bytes");
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc{} || end != word.data() + word.size() || value < 0) expected("a number of bytes");
    return value;
  }
  /// A slot after `arrow`, if there is one.
  std::optional<Slot> slot_if(std::string_view arrow, std::string_view prefix) {
    return take_if(arrow) ? std::optional(slot(prefix)) : std::nullopt;
  }
  int count() { return number(take("a number of ranks"), "a number of ranks"); }
  Slot slot(std::string_view prefix) {
    const std::string what = fmt::format("a slot such as {}0.1", prefix);
    std::string_view word = take(what);
    if (word.ends_with(',')) word.remove_suffix(1);
    const std::size_t dot = word.find('.');
    if (!word.starts_with(prefix) || dot == std::string_view::npos) expected(what);
    return {number(word.substr(prefix.size(), dot - prefix.size()), what), number(word.substr(dot + 1), what)};
  }
  ParamBlock param_block() {
    const std::string_view word = take("a parameter block");
    for (int b = 0; b < model_.param_blocks(); ++b)
      if (model_[ParamBlock{b}].name == word) return ParamBlock{b};
    expected("a parameter block of the model");
  }
  std::pair<Block, std::optional<Stage>> block() {
    const std::string_view word = take("a block");
    const std::size_t dot = word.find('.');
    for (int b = 0; b < model_.blocks(); ++b) {
      const model::ComputeBlock& block = model_[Block{b}];
      if (block.name != word.substr(0, dot)) continue;
      if (dot == std::string_view::npos) return {Block{b}, std::nullopt};
      for (std::size_t s = 0; s < block.stages.size(); ++s)
        if (block.stages[s].name == word.substr(dot + 1)) return {Block{b}, Stage{static_cast<int>(s)}};
      expected("a stage of the block");
    }
    expected("a block of the model");
  }
  std::pair<Block, Stage> block_and_stage() {
    const auto [found, stage] = block();
    if (!stage) expected("a stage of a block, such as b0.mlp");
    return {found, *stage};
  }
  Microbatch microbatch() { return Microbatch{prefixed("m", "a microbatch such as m0")}; }
  /// The number after `prefix`, in one word.
  int prefixed(std::string_view prefix, std::string_view what) {
    const std::string_view word = take(what);
    if (!word.starts_with(prefix)) expected(what);
    return number(word.substr(prefix.size()), what);
  }
  /// Whether the word just taken ended with a comma: another target follows.
  [[nodiscard]] bool comma() const { return words_[next_ - 1].ends_with(','); }
  bool add() { return take_listed("add"); }
  bool in_place() {
    if (!take_if("in")) return false;
    if (!take_listed("place")) expected("place");
    return true;
  }

 private:
  /// With or without a comma after it.
  bool take_listed(std::string_view word) {
    if (done() || !words_[next_].starts_with(word)) return false;
    const std::string_view rest = words_[next_].substr(word.size());
    if (!rest.empty() && rest != ",") return false;
    ++next_;
    return true;
  }

  std::string_view text_;
  int number_;
  const model::Model& model_;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

}  // namespace trireme::schedule
