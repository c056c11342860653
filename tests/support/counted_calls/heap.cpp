// SPDX-License-Identifier: Apache-2.0
//
// C++ objects on the heap: what Trireme keeps of each rank. MPI and PMIx are written in C, and libtorch's tensors do
// not come from here.
#include <malloc.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "counts.hpp"

namespace {

std::atomic<std::int64_t> live = 0, peak = 0, before = 0;

void* counted_memory(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  const std::int64_t now = live += static_cast<std::int64_t>(::malloc_usable_size(memory));
  for (std::int64_t most = peak; now > most && !peak.compare_exchange_weak(most, now);) {
  }
  return memory;
}

void* aligned(std::size_t size, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  return counted_memory(::aligned_alloc(to, (size + to - 1) / to * to));
}

void release(void* memory) {
  if (memory != nullptr) live -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

namespace counted {

void begin_heap() {
  before = live.load();
  peak = live.load();
}

std::int64_t heap_peak() { return peak - before; }

}  // namespace counted

// All other forms call these. A size of 0 still needs a unique address.
void* operator new(std::size_t size) { return counted_memory(std::malloc(size == 0 ? 1 : size)); }
void* operator new(std::size_t size, std::align_val_t alignment) { return aligned(size, alignment); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
