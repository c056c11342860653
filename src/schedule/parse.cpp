// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/schedule/text.hpp"

namespace trireme::schedule {
namespace {

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
  Microbatch microbatch() {
    const std::string_view word = take("a microbatch such as m0");
    if (!word.starts_with('m')) expected("a microbatch such as m0");
    return Microbatch{number(word.substr(1), "a microbatch such as m0")};
  }
  /// Whether the word just taken ended with a comma: another target follows.
  [[nodiscard]] bool comma() const { return words_[next_ - 1].ends_with(','); }
  bool add() {
    if (take_if("add")) return true;
    if (done() || words_[next_] != "add,") return false;
    ++next_;
    return true;
  }

 private:
  std::string_view text_;
  int number_;
  const model::Model& model_;
  std::vector<std::string_view> words_;
  std::size_t next_ = 0;
};

Op parse_backward(Line& line) {
  const auto [block, stage] = line.block();
  Backward op{.block = block, .stage = stage, .microbatch = line.microbatch(), .gradients = {}};
  if (!line.take_if("->")) return op;
  do {
    GradientTarget target{.block = line.param_block(), .slot = line.slot("grad"), .add = false};
    if (!line.comma()) target.add = line.add();
    op.gradients.push_back(target);
  } while (line.comma());
  return op;
}

Op parse_forward(Line& line) {
  const auto [block, stage] = line.block();
  Forward op{.block = block, .stage = stage, .microbatch = line.microbatch()};
  if (!line.take_if("keep")) return op;
  if (line.take_if("input"))
    op.keep = model::Keep::input;
  else if (line.take_if("all"))
    op.keep = model::Keep::all;
  else
    line.expected("input or all");
  return op;
}

Op parse_recompute(Line& line) {
  const auto [block, stage] = line.block();
  return Recompute{block, stage, line.microbatch()};
}

Op parse_unshard(Line& line) {
  const ParamBlock block = line.param_block();
  const std::optional<int> from = line.take_if("from") ? std::optional(line.count()) : std::nullopt;
  line.take_word("->");
  return Unshard{block, line.slot("ring"), from};
}

Op parse_reduce_scatter(Line& line) {
  const ParamBlock block = line.param_block();
  line.take_word("<-");
  const Slot slot = line.slot("grad");
  const bool add = line.take_if("add");
  return ReduceScatter{block, slot, add, !add && line.take_if("partial")};
}

Op parse_reshard(Line& line) {
  const ParamBlock block = line.param_block();
  return Reshard{block, line.take_if("to") ? std::optional(line.count()) : std::nullopt};
}

Op parse_all_reduce(Line& line) {
  const ParamBlock block = line.param_block();
  return AllReduce{block, line.take_if("partial")};
}

const std::map<std::string_view, std::function<Op(Line&)>>& verbs() {
  static const std::map<std::string_view, std::function<Op(Line&)>> table = {
      {"unshard", parse_unshard},
      {"reshard", parse_reshard},
      {"forward", parse_forward},
      {"recompute", parse_recompute},
      {"backward", parse_backward},
      {"reduce_scatter", parse_reduce_scatter},
      {"all_reduce", parse_all_reduce},
      {"clip_norm", [](Line&) -> Op { return ClipNorm{}; }},
      {"update", [](Line& line) -> Op { return Update{line.param_block()}; }},
  };
  return table;
}

}  // namespace

Schedule parse(std::string_view text, const model::Model& model) {
  Schedule out;
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Line line(content, ++number, model);
    if (line.done() || content.starts_with('#')) continue;
    const std::string_view verb = line.take("a verb");
    if (verb == "step") {
      std::string_view count = line.take("microbatches=N");
      if (!count.starts_with("microbatches=")) line.expected("microbatches=N");
      count.remove_prefix(std::string_view("microbatches=").size());
      out.microbatches = line.number(count, "microbatches=N");
    } else if (const auto found = verbs().find(verb); found != verbs().end()) {
      out.ops.push_back(found->second(line));
    } else {
      line.expected(
          "one of step, unshard, reshard, forward, recompute, backward, reduce_scatter, all_reduce, clip_norm, update");
    }
    if (!line.done()) line.expected("the end of the line");
  }
  return out;
}

}  // namespace trireme::schedule
