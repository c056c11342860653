// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "device/size_class.hpp"
#include "trireme/device/memory.hpp"

namespace trireme::device {

/// Header in front of the data of a block: how to free it and its account, found from the data's address alone.
struct Block {
  Block* newer = nullptr;  ///< neighbours among the cached blocks of its class
  Block* older = nullptr;
  std::size_t mapped = 0;      ///< bytes taken from the system, header included
  std::size_t requested = 0;   ///< bytes requested by the caller
  std::uint64_t freed_at = 0;  ///< on the cache's own clock
  void* base = nullptr;        ///< start of the mapping
  int size_class = 0;          ///< `exact_size`: never cached
  Account account;

  [[nodiscard]] void* data() { return reinterpret_cast<std::byte*>(this) + 64; }
  [[nodiscard]] static Block& of(void* data) { return *reinterpret_cast<Block*>(static_cast<std::byte*>(data) - 64); }
};
static_assert(sizeof(Block) <= 64);

/// Blocks of memory in size classes, the freed ones kept for the next request of their class. Thread-safe.
class BlockCache {
 public:
  struct Counts {
    Bytes allocated, cached, reserved, peak_reserved;
    std::int64_t allocations = 0, reused = 0;
  };

  /// A block for `bytes`, a cached one if there is one; nullptr when there is no memory within the limit.
  [[nodiscard]] Block* take(std::size_t bytes);
  /// A zeroed block of exactly `bytes`, returned to the system when freed; nullptr when out of memory.
  [[nodiscard]] Block* take_exact(std::size_t bytes);
  void give(Block& block) noexcept;

  Bytes trim();
  void set_limit(Bytes limit);
  void set_cache_limit(Bytes limit);
  [[nodiscard]] Counts counts() const;
  void reset_peak();

 private:
  struct Bin {
    Block* newest = nullptr;
    Block* oldest = nullptr;
  };
  using Guard = std::unique_lock<std::mutex>;

  Block* fresh(Guard& guard, std::size_t bytes, int size_class);
  Block* pop(Bin& bin);
  void push(Block& block);
  void remove(Block& block);
  Block* oldest();
  /// Returns the longest unused blocks to the system until at most `cached` bytes are cached.
  void evict(Guard& guard, std::size_t cached);
  /// True when `more` bytes fit under the limit, after giving cached blocks back if need be.
  bool make_room(Guard& guard, std::size_t more);
  [[nodiscard]] std::size_t in_use() const { return reserved_ - cached_; }

  mutable std::mutex lock_;
  std::array<Bin, size_classes> bins_;
  std::size_t reserved_ = 0, cached_ = 0, allocated_ = 0;  ///< mapped; mapped and free; requested
  std::size_t peak_reserved_ = 0, peak_in_use_ = 0;
  std::size_t limit_ = 0, cache_limit_ = 0;  ///< 0: none
  std::uint64_t clock_ = 0;
  std::int64_t allocations_ = 0, reused_ = 0;
};

/// The process's cache. Never destroyed: tensors of static lifetime are freed after main.
[[nodiscard]] BlockCache& block_cache();

}  // namespace trireme::device
