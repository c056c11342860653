// SPDX-License-Identifier: Apache-2.0
//
// The digest of a rank's shards, compared with its definition.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "checkpoint/rank_shards.hpp"

namespace trireme::checkpoint {
namespace {

/// One element's part of the digest of (quantity, parameter).
std::uint64_t hash_of(std::uint64_t key, std::int64_t element, float value) {
  constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL, odd = 0xD6E8FEB86659FD93ULL;
  const auto scrambled = [](std::uint64_t word) { return word ^ (word >> 32); };
  const std::uint64_t place = key + static_cast<std::uint64_t>(element) * golden;
  return scrambled(scrambled(place ^ (std::uint64_t{std::bit_cast<std::uint32_t>(value)} * odd)) * odd);
}

TEST(Digest, IsTheSumOverElementsWhateverTheMesh) {
  constexpr std::int64_t step = 7;
  std::uint64_t expected = 0;
  RankShards whole({.replicate = 1, .shard = 1, .tensor = 1}, 0);
  whole.fill(step);
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < whole.model().param_blocks(); ++b) {
      const Shards held = whole.shards();
      for (const shard::Slice& slice : shard::whole_slices(held.model[ParamBlock{b}], held.layout[ParamBlock{b}], 0))
        for (std::int64_t i = 0; i < slice.elements.size(); ++i)
          expected += hash_of(
              stream_key(static_cast<std::uint64_t>(quantity), held.model[{ParamBlock{b}, slice.parameter}].name),
              slice.elements.begin + i,
              whole.values(quantity, ParamBlock{b})[static_cast<std::size_t>(slice.offset + i)]);
    }
  for (const int shard : {1, 2, 3, 5}) {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < shard; ++rank) {
      RankShards part({.replicate = 1, .shard = shard, .tensor = 1}, rank);
      part.fill(step);
      sum += shard_digest(part.shards());
    }
    EXPECT_EQ(sum, expected) << shard << " shards";
  }
}

}  // namespace
}  // namespace trireme::checkpoint
