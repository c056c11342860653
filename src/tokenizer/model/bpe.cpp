// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/model/bpe.hpp"

#include <limits>
#include <queue>

#include "tokenizer/text/utf8.hpp"

namespace trireme::tokenizer::hf {
namespace {

constexpr std::uint32_t no_merge = std::numeric_limits<std::uint32_t>::max();
/// Up to this size a search of all pairs for the next merge is faster than a queue.
constexpr std::size_t few_symbols = 48;

}  // namespace

void Bpe::encode(std::string_view piece, Work& work, std::vector<std::int32_t>& out) const {
  if (!cuts_) return encode_cached(piece, work, out);
  std::size_t begin = 0;
  for (std::size_t at = piece.find(space_piece, 1); at != std::string_view::npos;
       at = piece.find(space_piece, at + 1)) {
    const bool after_another = piece.substr(0, at).ends_with(space_piece);
    if (joined_[after_another ? 0xFF : static_cast<unsigned char>(piece[at - 1])]) continue;
    encode_cached(piece.substr(begin, at - begin), work, out);
    begin = at;
  }
  encode_cached(piece.substr(begin), work, out);
}

void Bpe::encode_cached(std::string_view segment, Work& work, std::vector<std::int32_t>& out) const {
  if (segment.size() > WordCache::longest || segment.empty()) return encode_segment(segment, work, out);
  const std::uint64_t hash = hash_of(segment);
  if (work.cache.find(segment, hash, out)) return;
  const std::size_t before = out.size();
  encode_segment(segment, work, out);
  work.cache.insert(segment, hash, out.data() + before, out.size() - before);
}

void Bpe::encode_segment(std::string_view segment, Work& work, std::vector<std::int32_t>& out) const {
  if (segment.empty()) return;
  if (whole_first_) {
    if (const std::int32_t id = id_of(pieces_, segment); id >= 0) return out.push_back(id);
  }
  work.symbols.clear();
  split_characters(segment, work.symbols);
  if (work.symbols.size() <= few_symbols) {
    merge_few(work);
  } else {
    merge_many(work.symbols);
  }
  out.insert(out.end(), work.symbols.begin(), work.symbols.end());
}

std::int32_t Bpe::id_of_character(std::string_view character, bool first, bool last) const {
  const bool prefixed = !first && !prefix_.empty();
  const bool suffixed = last && !suffix_.empty();
  if (prefixed || suffixed) {
    return id_of(pieces_, (prefixed ? prefix_ : "") + std::string(character) + (suffixed ? suffix_ : ""));
  }
  const std::int32_t* id = characters_.find(static_cast<std::uint64_t>(code_point_at(character, 0).value));
  return id == nullptr ? -1 : *id;
}

/// A character that is not a token becomes the tokens of its bytes, else the unknown token, else nothing. As the
/// `tokenizers` package does, a run of unknown ones ends only at a character that is a token.
void Bpe::split_characters(std::string_view segment, std::vector<std::int32_t>& symbols) const {
  bool pending = false;  // an unknown token that is not yet among the symbols
  for (std::size_t at = 0; at < segment.size();) {
    const std::size_t bytes = bytes_ ? 1 : code_point_at(segment, at).bytes;
    const std::string_view character = segment.substr(at, bytes);
    const std::int32_t id = bytes_ ? byte_ids_[static_cast<unsigned char>(character[0])]
                                   : id_of_character(character, at == 0, at + bytes == segment.size());
    at += bytes;
    if (id >= 0) {
      if (pending) symbols.push_back(unknown_);
      pending = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_ && !bytes_) {
      bool known = true;
      for (const char byte : character) known = known && byte_ids_[static_cast<unsigned char>(byte)] >= 0;
      if (known) {
        for (const char byte : character) symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
        continue;
      }
    }
    if (unknown_ < 0) continue;
    if (pending && !fuse_unknown_) symbols.push_back(unknown_);
    pending = true;
  }
  if (pending) symbols.push_back(unknown_);
}

void Bpe::merge_few(Work& work) const {
  std::vector<std::int32_t>& symbols = work.symbols;
  std::vector<std::uint32_t>& ranks = work.ranks;
  const auto rank_at = [&](std::size_t i) {
    const Merge* merge = i + 1 < symbols.size() ? merge_of(symbols[i], symbols[i + 1]) : nullptr;
    return merge == nullptr ? no_merge : merge->rank;
  };
  ranks.resize(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) ranks[i] = rank_at(i);
  while (true) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < symbols.size(); ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (symbols.empty() || ranks[best] == no_merge) return;
    symbols[best] = merge_of(symbols[best], symbols[best + 1])->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    ranks[best] = rank_at(best);
    if (best > 0) ranks[best - 1] = rank_at(best - 1);
  }
}

void Bpe::merge_many(std::vector<std::int32_t>& symbols) const {
  struct Candidate {
    std::uint32_t rank;
    std::uint32_t at;
    std::int32_t id;
    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  constexpr auto none = std::numeric_limits<std::uint32_t>::max();
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> before(count);
  std::vector<bool> gone(count);
  std::vector<Candidate> initial;
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : none;
    before[i] = i > 0 ? i - 1 : none;
    if (i + 1 == count) break;
    if (const Merge* merge = merge_of(symbols[i], symbols[i + 1])) initial.push_back({merge->rank, i, merge->id});
  }
  std::priority_queue queue(std::greater<Candidate>(), std::move(initial));
  const auto offer = [&](std::uint32_t left) {
    if (left == none || next[left] == none) return;
    if (const Merge* merge = merge_of(symbols[left], symbols[next[left]])) queue.push({merge->rank, left, merge->id});
  };
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    if (gone[top.at] || next[top.at] == none) continue;
    const std::uint32_t right = next[top.at];
    const Merge* merge = merge_of(symbols[top.at], symbols[right]);
    if (merge == nullptr || merge->id != top.id) continue;  // one of the two has been merged meanwhile
    symbols[top.at] = top.id;
    gone[right] = true;
    next[top.at] = next[right];
    if (next[right] != none) before[next[right]] = top.at;
    offer(before[top.at]);
    offer(top.at);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (!gone[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

}  // namespace trireme::tokenizer::hf
