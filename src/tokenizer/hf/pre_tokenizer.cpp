// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf/pre_tokenizer.hpp"

#include <algorithm>
#include <array>

#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

std::uint32_t narrow(std::size_t at) { return static_cast<std::uint32_t>(at); }

/// Takes a text's parts in order, each a match or the text between two, and forms pieces of them.
class Cutter {
 public:
  Cutter(Behavior behavior, std::vector<Range>& out) : behavior_(behavior), out_(out), first_(out.size()) {}

  void add(Range part, bool matched) {
    if (part.begin == part.end && behavior_ != Behavior::contiguous) {
      // An empty match is a piece that is dropped, yet one after which the next begins.
      before_matched_ = matched;
      return;
    }
    switch (behavior_) {
      case Behavior::isolated: out_.push_back(part); break;
      case Behavior::removed:
        if (!matched) out_.push_back(part);
        break;
      case Behavior::contiguous: extend_or_push(part, matched == before_matched_); break;
      case Behavior::merged_with_previous: extend_or_push(part, matched && !before_matched_); break;
      case Behavior::merged_with_next: extend_or_push(part, before_matched_ && !matched); break;
    }
    before_matched_ = matched;
  }

 private:
  void extend_or_push(Range part, bool extends) {
    if (extends && out_.size() > first_) {
      out_.back().end = part.end;
    } else {
      out_.push_back(part);
    }
  }

  Behavior behavior_;
  std::vector<Range>& out_;
  std::size_t first_;
  bool before_matched_ = false;
};

/// Cuts `range` of `text` at matches. next(from): the first match in the range at `from` or later.
template <class Next>
void cut(Range range, Behavior behavior, bool inverted, std::vector<Range>& out, Next next, std::string_view text) {
  Cutter cutter(behavior, out);
  std::uint32_t done = range.begin;
  std::uint32_t from = range.begin;
  while (from <= range.end) {
    const std::optional<Range> match = next(from);
    if (!match) break;
    if (match->begin > done) cutter.add({done, match->begin}, inverted);
    cutter.add(*match, !inverted);
    done = match->end;
    from = match->end;
    if (match->begin == match->end) from += from < range.end ? code_point_at(text, from).bytes : 1;
  }
  if (done < range.end) cutter.add({done, range.end}, inverted);
}

/// Matches a regular expression against each piece alone: lookaround does not cross its ends.
void cut_at(const SplitAtPattern& split, std::string_view text, Range range, std::vector<Range>& out) {
  const std::string_view piece = text.substr(range.begin, range.end - range.begin);
  const auto shifted = [&](Range found) { return Range{found.begin + range.begin, found.end + range.begin}; };
  const auto next = [&](std::uint32_t from) -> std::optional<Range> {
    if (split.pattern) {
      const auto found = split.pattern->find(piece, from - range.begin);
      return found ? std::optional(shifted(*found)) : std::nullopt;
    }
    const std::size_t at = piece.find(split.literal, from - range.begin);
    if (at == std::string_view::npos) return std::nullopt;
    return shifted({narrow(at), narrow(at + split.literal.size())});
  };
  cut(range, split.behavior, split.inverted, out, next, text);
}

void cut_at(const SplitAtCharacters& split, std::string_view text, Range range, std::vector<Range>& out) {
  const auto next = [&](std::uint32_t from) -> std::optional<Range> {
    while (from < range.end) {
      const CodePoint point = code_point_at(text, from);
      if (split.is_one(point.value)) return Range{from, from + point.bytes};
      from += point.bytes;
    }
    return std::nullopt;
  };
  cut(range, split.behavior, false, out, next, text);
}

void cut_at(const Words&, std::string_view text, Range range, std::vector<Range>& out) {
  enum class Kind : std::uint8_t { none, word, other };
  Kind before = Kind::none;
  for (std::uint32_t at = range.begin; at < range.end;) {
    const CodePoint point = code_point_at(text, at);
    const Kind kind = is_word(point.value) ? Kind::word : is_white_space(point.value) ? Kind::none : Kind::other;
    if (kind != Kind::none) {
      if (kind == before) {
        out.back().end = at + point.bytes;
      } else {
        out.push_back({at, at + point.bytes});
      }
    }
    before = kind;
    at += point.bytes;
  }
}

/// Applies the step to all pieces, in order.
template <class Step>
void apply(const Step& step, Pieces& pieces) {
  pieces.other_ranges.clear();
  for (const Range range : pieces.ranges) cut_at(step, pieces.text, range, pieces.other_ranges);
  pieces.ranges.swap(pieces.other_ranges);
}

/// Writes a new text: every piece by `write(piece, index, out)`.
template <class Write>
void rewrite(Pieces& pieces, Write write) {
  std::string& out = pieces.other_storage;
  out.clear();
  out.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    Range& range = pieces.ranges[i];
    const auto begin = narrow(out.size());
    write(pieces.text.substr(range.begin, range.end - range.begin), i, out);
    range = {begin, narrow(out.size())};
  }
  pieces.storage.swap(pieces.other_storage);
  pieces.text = pieces.storage;
}

void apply(const Metaspace& metaspace, Pieces& pieces) {
  using Scheme = Metaspace::Scheme;
  rewrite(pieces, [&](std::string_view piece, std::size_t index, std::string& out) {
    const bool may =
        metaspace.scheme == Scheme::always || (metaspace.scheme == Scheme::first && index == 0 && pieces.begins);
    if (may && !piece.starts_with(' ') && !piece.starts_with(metaspace.replacement)) out += metaspace.replacement;
    for (const char byte : piece) {
      if (byte == ' ') {
        out += metaspace.replacement;
      } else {
        out += byte;
      }
    }
  });
  if (metaspace.splits)
    apply(SplitAtPattern{std::nullopt, metaspace.replacement, Behavior::merged_with_next, false}, pieces);
}

void apply(const PrefixSpace&, Pieces& pieces) {
  const auto lacks = [&](Range range) { return pieces.text[range.begin] != ' '; };
  if (std::ranges::none_of(pieces.ranges, lacks)) return;
  rewrite(pieces, [](std::string_view piece, std::size_t, std::string& out) {
    if (!piece.starts_with(' ')) out += ' ';
    out += piece;
  });
}

void apply(const BytesToCharacters&, Pieces& pieces) {
  rewrite(pieces, [](std::string_view piece, std::size_t, std::string& out) {
    for (const char byte : piece) append_utf8(out, byte_character(static_cast<unsigned char>(byte)));
  });
}

}  // namespace

void pre_tokenize(const PreTokenizers& pre_tokenizers, std::string_view text, bool begins, Pieces& pieces) {
  pieces.text = text;
  pieces.ranges.clear();
  if (text.empty()) return;
  pieces.ranges.push_back({0, narrow(text.size())});
  pieces.begins = begins;
  for (const PreTokenizer& step : pre_tokenizers.steps) {
    std::visit([&](const auto& each) { apply(each, pieces); }, step);
    if (!pieces.ranges.empty() && pieces.ranges.front().begin > 0) pieces.begins = false;
  }
}

}  // namespace trireme::tokenizer::hf
