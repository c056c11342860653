// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/model/word_cache.hpp"

#include <algorithm>
#include <cstring>

namespace trireme::tokenizer::hf {

bool WordCache::find(std::string_view piece, std::uint64_t hash, std::vector<std::int32_t>& out) const {
  for (std::size_t at = hash & (slots - 1);; at = (at + 1) & (slots - 1)) {
    const Entry& entry = entries_[at];
    if (entry.bytes == 0) return false;
    if (entry.hash != hash || entry.bytes != piece.size()) continue;
    if (std::memcmp(texts_.data() + entry.text, piece.data(), piece.size()) != 0) continue;
    const std::int32_t* ids = ids_.data() + entry.ids;
    out.insert(out.end(), ids, ids + entry.count);
    return true;
  }
}

void WordCache::insert(std::string_view piece, std::uint64_t hash, const std::int32_t* ids, std::size_t count) {
  if (used_ >= slots / 2) {
    std::ranges::fill(entries_, Entry{});
    texts_.clear();
    ids_.clear();
    used_ = 0;
  }
  std::size_t at = hash & (slots - 1);
  while (entries_[at].bytes != 0) at = (at + 1) & (slots - 1);
  entries_[at] = {.hash = hash,
                  .text = static_cast<std::uint32_t>(texts_.size()),
                  .ids = static_cast<std::uint32_t>(ids_.size()),
                  .bytes = static_cast<std::uint16_t>(piece.size()),
                  .count = static_cast<std::uint16_t>(count)};
  texts_.append(piece);
  ids_.insert(ids_.end(), ids, ids + count);
  ++used_;
}

}  // namespace trireme::tokenizer::hf
