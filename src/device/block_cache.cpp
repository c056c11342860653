// SPDX-License-Identifier: Apache-2.0
#include "device/block_cache.hpp"

#include <algorithm>
#include <utility>

#include "device/pages.hpp"

namespace trireme::device {
namespace {

Bytes to_bytes(std::size_t value) { return {static_cast<std::int64_t>(value)}; }
std::size_t to_size(Bytes bytes) { return static_cast<std::size_t>(std::max<std::int64_t>(bytes.value, 0)); }

/// The most that may be reserved for a use that peaked at `peak_in_use`: a step whose sizes do not repeat must not pile
/// up blocks.
std::size_t reserve_bound(std::size_t peak_in_use) { return peak_in_use + peak_in_use / 2 + (std::size_t{64} << 20); }

}  // namespace

Block* BlockCache::take(std::size_t bytes) {
  if (bytes > largest_request) return nullptr;
  Guard guard(lock_);
  const int wanted = size_class(bytes);
  Block* block = pop(bins_[static_cast<std::size_t>(wanted)]);
  if (block != nullptr) {
    cached_ -= block->mapped;
    peak_in_use_ = std::max(peak_in_use_, in_use());
    ++reused_;
  } else {
    block = fresh(guard, class_bytes(wanted), wanted);
    if (block == nullptr) return nullptr;
  }
  ++allocations_;
  block->requested = bytes;
  allocated_ += bytes;
  return block;
}

Block* BlockCache::take_exact(std::size_t bytes) {
  if (bytes > largest_request) return nullptr;
  Guard guard(lock_);
  Block* block = fresh(guard, bytes, exact_size);
  if (block == nullptr) return nullptr;
  ++allocations_;
  block->requested = bytes;
  allocated_ += bytes;
  return block;
}

Block* BlockCache::fresh(Guard& guard, std::size_t bytes, int size_class) {
  const std::size_t mapped = mapped_bytes(bytes);
  for (bool retried = false;; retried = true) {
    if (!make_room(guard, mapped)) return nullptr;
    reserved_ += mapped;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    peak_in_use_ = std::max(peak_in_use_, in_use());
    guard.unlock();
    Block* block = map_block(bytes, size_class == exact_size);
    guard.lock();
    if (block != nullptr) {
      block->size_class = size_class;
      return block;
    }
    reserved_ -= mapped;
    if (retried) return nullptr;
    evict(guard, 0);
  }
}

void BlockCache::give(Block& block) noexcept {
  Guard guard(lock_);
  allocated_ -= block.requested;
  if (block.size_class == exact_size) {
    reserved_ -= block.mapped;
    guard.unlock();
    unmap_block(block);
    return;
  }
  block.freed_at = ++clock_;
  push(block);
  cached_ += block.mapped;
  if (cache_limit_ != 0) evict(guard, cache_limit_);
}

bool BlockCache::make_room(Guard& guard, std::size_t more) {
  const std::size_t used = in_use() + more;
  if (limit_ != 0 && used > limit_) return false;
  std::size_t bound = reserve_bound(std::max(peak_in_use_, used));
  if (limit_ != 0) bound = std::min(bound, limit_);
  evict(guard, bound - used);
  return true;
}

void BlockCache::evict(Guard& guard, std::size_t cached) {
  Block* gone = nullptr;
  while (cached_ > cached) {
    Block* block = oldest();
    remove(*block);
    cached_ -= block->mapped;
    reserved_ -= block->mapped;
    block->newer = std::exchange(gone, block);
  }
  if (gone == nullptr) return;
  guard.unlock();
  while (gone != nullptr) unmap_block(*std::exchange(gone, gone->newer));
  guard.lock();
}

Block* BlockCache::pop(Bin& bin) {
  Block* block = bin.newest;
  if (block != nullptr) remove(*block);
  return block;
}

void BlockCache::push(Block& block) {
  Bin& bin = bins_[static_cast<std::size_t>(block.size_class)];
  block.newer = nullptr;
  block.older = std::exchange(bin.newest, &block);
  (block.older != nullptr ? block.older->newer : bin.oldest) = &block;
}

void BlockCache::remove(Block& block) {
  Bin& bin = bins_[static_cast<std::size_t>(block.size_class)];
  (block.newer != nullptr ? block.newer->older : bin.newest) = block.older;
  (block.older != nullptr ? block.older->newer : bin.oldest) = block.newer;
}

Block* BlockCache::oldest() {
  Block* found = nullptr;
  for (const Bin& bin : bins_) {
    if (bin.oldest != nullptr && (found == nullptr || bin.oldest->freed_at < found->freed_at)) found = bin.oldest;
  }
  return found;
}

Bytes BlockCache::trim() {
  Guard guard(lock_);
  const std::size_t before = cached_;
  evict(guard, 0);
  return to_bytes(before);
}

void BlockCache::set_limit(Bytes limit) {
  Guard guard(lock_);
  limit_ = to_size(limit);
}

void BlockCache::set_cache_limit(Bytes limit) {
  Guard guard(lock_);
  cache_limit_ = to_size(limit);
  if (cache_limit_ != 0) evict(guard, cache_limit_);
}

BlockCache::Counts BlockCache::counts() const {
  const std::scoped_lock guard(lock_);
  return {.allocated = to_bytes(allocated_),
          .cached = to_bytes(cached_),
          .reserved = to_bytes(reserved_),
          .peak_reserved = to_bytes(peak_reserved_),
          .allocations = allocations_,
          .reused = reused_};
}

void BlockCache::reset_peak() {
  const std::scoped_lock guard(lock_);
  peak_reserved_ = reserved_;
}

BlockCache& block_cache() {
  static BlockCache& cache = *new BlockCache;
  return cache;
}

}  // namespace trireme::device
