// SPDX-License-Identifier: Apache-2.0
#include "device/pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "device/block_cache.hpp"
#include "trireme/device/buffer.hpp"

namespace trireme::device {
namespace {

constexpr std::size_t header_bytes = 64;
constexpr std::size_t page = 4096;
constexpr std::size_t huge_page = std::size_t{1} << 21;

constexpr std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

void* map(std::size_t bytes) noexcept {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

/// Maps more and cuts both ends off, so that huge pages can begin at the first byte.
void* map_huge(std::size_t bytes) noexcept {
  void* wide = map(bytes + huge_page);
  if (wide == nullptr) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(wide);
  const std::uintptr_t aligned = round_up(begin, huge_page);
  if (aligned != begin) munmap(wide, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + huge_page - aligned);
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

Block* place_header(void* base, std::size_t offset, std::size_t mapped) noexcept {
  auto* block = new (static_cast<std::byte*>(base) + offset) Block;
  block->base = base;
  block->mapped = mapped;
  return block;
}

}  // namespace

std::size_t mapped_bytes(std::size_t bytes) {
  return bytes < own_pages ? round_up(bytes, 64) + header_bytes : round_up(bytes, page) + page;
}

Block* map_block(std::size_t bytes, bool zeroed) noexcept {
  const std::size_t mapped = mapped_bytes(bytes);
  if (bytes >= own_pages) {
    void* base = mapped >= 2 * huge_page ? map_huge(mapped) : map(mapped);
    return base == nullptr ? nullptr : place_header(base, page - header_bytes, mapped);
  }
  void* base = std::aligned_alloc(64, mapped);
  if (base == nullptr) return nullptr;
  if (zeroed) std::memset(base, 0, mapped);
  return place_header(base, 0, mapped);
}

void unmap_block(Block& block) noexcept {
  const std::size_t mapped = block.mapped;
  void* base = block.base;
  if (base == &block) {
    std::free(base);
  } else {
    munmap(base, mapped);
  }
}

}  // namespace trireme::device
