// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tokenizer::hf {

/// The ids of pieces that were encoded before; one per thread. When it is full it is emptied: frequent pieces are back
/// at once.
class WordCache {
 public:
  static constexpr std::size_t longest = 64;  ///< bytes of a piece

  WordCache() : entries_(slots) {}

  /// Appends the ids of `piece` to `out`; false when they are not known.
  bool find(std::string_view piece, std::uint64_t hash, std::vector<std::int32_t>& out) const;
  void insert(std::string_view piece, std::uint64_t hash, const std::int32_t* ids, std::size_t count);

 private:
  static constexpr std::size_t slots = std::size_t{1} << 18;
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t text = 0;
    std::uint32_t ids = 0;
    std::uint16_t bytes = 0;  ///< 0: free
    std::uint16_t count = 0;
  };

  std::vector<Entry> entries_;
  std::size_t used_ = 0;
  std::string texts_;
  std::vector<std::int32_t> ids_;
};

}  // namespace trireme::tokenizer::hf
