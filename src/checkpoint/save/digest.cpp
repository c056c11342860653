// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t golden = 0x9E3779B97F4A7C15ULL;  // splitmix64's increment (Steele et al. 2014)
constexpr std::uint64_t odd = 0xD6E8FEB86659FD93ULL;     // rrxmrrxmsx_0's multiplier (Evensen 2018)

using Digest = std::uint64_t (*)(std::uint64_t key, std::int64_t first, std::span<const float> values);

/// Sum over the elements of a hash of (place, bits).
[[gnu::always_inline]] inline std::uint64_t sum_of_hashes(std::uint64_t key, std::int64_t first,
                                                          std::span<const float> values) {
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

/// AVX2 has no product of 64-bit words: to build it of others takes twice as long as the plain loop.
[[gnu::optimize("no-tree-vectorize")]] std::uint64_t digest_portable(std::uint64_t key, std::int64_t first,
                                                                     std::span<const float> values) {
  return sum_of_hashes(key, first, values);
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512dq,prefer-vector-width=512"))) std::uint64_t digest_avx512(
    std::uint64_t key, std::int64_t first, std::span<const float> values) {
  return sum_of_hashes(key, first, values);
}

const Digest digest =
    __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? digest_avx512 : digest_portable;
#else
constexpr Digest digest = digest_portable;
#endif

}  // namespace

std::uint64_t shard_digest(const Shards& shards) {
  std::uint64_t sum = 0;
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      if (shards.is_copy(block)) continue;
      const std::span<const float> values = shards.values(quantity, block);
      const int shard = shards.layout.shard_of(block, shards.at.shard);
      const optimizer::StateLayout places = shards.places(quantity, block, shard);
      for (const shard::Slice& slice :
           shard::whole_slices(shards.model[block], shards.layout[block], shard, shard::Copies::first))
        if (shards.has(quantity, block, slice.parameter))
          sum += digest(stream_key(static_cast<std::uint64_t>(quantity), shards.model[{block, slice.parameter}].name),
                        slice.elements.begin,
                        values.subspan(static_cast<std::size_t>(places.place(slice.parameter, slice.offset)),
                                       static_cast<std::size_t>(slice.elements.size())));
    }
  return sum;
}

}  // namespace trireme::checkpoint
