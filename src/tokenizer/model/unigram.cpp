// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/model/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tokenizer/text/utf8.hpp"
#include "trireme/base/error.hpp"

namespace trireme::tokenizer::hf {
namespace {

/// A score as the `tokenizers` package reads it from JSON: all digits as one number, then divided by a power of ten,
/// which may be one unit in the last place off. Which of two equal ways wins hangs on it.
double as_read_there(double exact) {
  const std::string text = fmt::format("{:e}", exact);  // has too few digits: only its exponent is used
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  const std::string shortest = fmt::format("{}", exact);
  std::uint64_t digits = 0;
  int count = 0;
  for (const char one : shortest.substr(0, shortest.find('e'))) {
    if (one < '0' || one > '9') continue;
    digits = digits * 10 + static_cast<std::uint64_t>(one - '0');
    if (digits > 0) ++count;
  }
  const int power = exponent - (count - 1);
  if (digits == 0 || count > 19 || power > 22 || power < -300) return exact;
  const double scaled = power < 0 ? static_cast<double>(digits) / std::pow(10.0, -power)
                                  : static_cast<double>(digits) * std::pow(10.0, power);
  return exact < 0 ? -scaled : scaled;
}

}  // namespace

Unigram::Unigram(const Node& model, const Vocabulary& vocabulary)
    : byte_fallback_(model.flag("byte_fallback", false)),
      byte_ids_(byte_tokens(vocabulary)),
      where_(model.where()),
      vocabulary_(vocabulary) {
  for (const Node& item : model["vocab"].items()) {
    const auto& pair = item.value();
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number())
      item.refuse("is not a token and its score");
    trie_.insert(pair[0].get_ref<const std::string&>(), static_cast<std::int32_t>(scores_.size()));
    scores_.push_back(as_read_there(pair[1].get<double>()));
  }
  if (scores_.empty()) model["vocab"].refuse("is empty");
  unknown_score_ = std::ranges::min(scores_) - 10.0;  // SentencePiece's kUnkPenalty
  if (!model["unk_id"].is_null()) {
    const std::int64_t id = model.whole("unk_id");
    if (id < 0 || id >= static_cast<std::int64_t>(scores_.size())) model["unk_id"].refuse("is beyond the vocabulary");
    unknown_ = static_cast<std::int32_t>(id);
  }
}

void Unigram::encode(std::string_view piece, Work& work, std::vector<std::int32_t>& out) const {
  if (piece.empty()) return;
  if (piece.size() > WordCache::longest) return encode_anew(piece, out);
  const std::uint64_t hash = hash_of(piece);
  if (work.cache.find(piece, hash, out)) return;
  const std::size_t before = out.size();
  encode_anew(piece, out);
  work.cache.insert(piece, hash, out.data() + before, out.size() - before);
}

/// The best way to each byte; ties go to the token that was tried first, which is the longest: as the `tokenizers`
/// package sums and compares.
void Unigram::encode_anew(std::string_view piece, std::vector<std::int32_t>& out) const {
  struct Node {
    double score = 0;
    std::int32_t id = -1;
    std::int32_t begin = -1;
  };
  std::vector<Node> best(piece.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::int32_t id, double score) {
    Node& node = best[end];
    const double sum = score + best[begin].score;
    if (node.begin < 0 || sum > node.score) node = {sum, id, static_cast<std::int32_t>(begin)};
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t bytes = code_point_at(piece, at).bytes;
    bool single = false;
    trie_.prefixes(piece.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(at, at + length, id, scores_[static_cast<std::size_t>(id)]);
      single = single || length == bytes;
    });
    if (!single) {
      if (unknown_ < 0)
        throw DataError(fmt::format("{} has no unk_id, and no token for U+{:04X} of the text", where_,
                                    static_cast<std::uint32_t>(code_point_at(piece, at).value)));
      offer(at, at + bytes, unknown_, unknown_score_);
    }
    at += bytes;
  }
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the back
  std::size_t unknown_end = 0;                             // of a run of unknown characters, which is one part
  for (std::size_t end = piece.size(); end > 0;) {
    const Node& node = best[end];
    const auto begin = static_cast<std::size_t>(node.begin);
    if (unknown_ >= 0 && node.id == unknown_) {
      if (unknown_end == 0) unknown_end = end;
    } else {
      if (unknown_end > 0) parts.emplace_back(end, unknown_end);
      unknown_end = 0;
      parts.emplace_back(begin, end);
    }
    end = begin;
  }
  if (unknown_end > 0) parts.emplace_back(0, unknown_end);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    append_unknown(piece.substr(part->first, part->second - part->first), out);
}

/// The id of a text if it is a token, else those of its bytes, else the unknown one.
void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& out) const {
  if (const std::int32_t id = id_of(vocabulary_, text); id >= 0) return out.push_back(id);
  const auto id_of_byte = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::ranges::all_of(text, [&](char byte) { return id_of_byte(byte) >= 0; })) {
    for (const char byte : text) out.push_back(id_of_byte(byte));
    return;
  }
  out.push_back(unknown_);
}

}  // namespace trireme::tokenizer::hf
