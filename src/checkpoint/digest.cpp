// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/save.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;  // splitmix64's increment (Steele et al. 2014)
constexpr std::uint64_t odd = 0xD6E8FEB86659FD93ULL;     // rrxmrrxmsx_0's multiplier (Evensen 2018)

/// Sum over the elements of a hash of (place, bits).
std::uint64_t digest(std::uint64_t key, std::int64_t first, std::span<const float> values) {
  std::uint64_t sum = 0;
  std::uint64_t place = key + static_cast<std::uint64_t>(first) * golden;
  for (const float value : values) {
    std::uint64_t hash = place ^ (std::uint64_t{std::bit_cast<std::uint32_t>(value)} * odd);
    hash = (hash ^ (hash >> 32)) * odd;
    sum += hash ^ (hash >> 32);
    place += golden;
  }
  return sum;
}

}  // namespace

std::uint64_t shard_digest(const Shards& shards) {
  std::uint64_t sum = 0;
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const std::span<const float> values = shards.values(quantity, block);
      for (const shard::Slice& slice :
           shard::whole_slices(shards.model[block], shards.layout[block], shards.at.shard, shard::Copies::first))
        sum += digest(
            stream_key(static_cast<std::uint64_t>(quantity), shards.model[{block, slice.parameter}].name),
            slice.elements.begin,
            values.subspan(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(slice.elements.size())));
    }
  return sum;
}

}  // namespace trireme::checkpoint
