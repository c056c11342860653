// SPDX-License-Identifier: Apache-2.0
#include "support/made_up_gpu/engine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "device/gpu_charges.hpp"
#include "device/out_of_memory.hpp"
#include "kernels/on_host/cuda_runtime.h"
#include "trireme/base/error.hpp"

namespace trireme::test::gpu {
namespace {

constexpr std::size_t room = std::size_t{8} << 30, granule = 512, page = 4096;

/// All of the device's memory, in one place, so that one call opens and closes it.
class Memory final : public c10::Allocator {
 public:
  Memory() {
    void* const begin = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    invariant(begin != MAP_FAILED, "there is room for the addresses of a made-up GPU");
    begin_ = static_cast<std::byte*>(begin);
    c10::SetAllocator(c10::DeviceType::CUDA, this);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device here(c10::DeviceType::CUDA, 0);
    if (bytes == 0) return {nullptr, here};
    const std::size_t size = (bytes + granule - 1) / granule * granule;
    std::byte* const data = take(size, recording() != nullptr ? recording()->pool : 0);
    device::gpu_charges().allocated(data, size);
    fill(data, size);
    return {data, data, &Memory::free, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const Running now;
    std::memcpy(to, from, bytes);
  }

  [[nodiscard]] bool holds(const void* address) const { return address >= begin_ && address < begin_ + room; }
  void open(bool access) {
    if (!closes_) return;
    const std::size_t used = (used_ + page - 1) / page * page;
    invariant(mprotect(begin_, std::max(used, page), access ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
              "the made-up GPU's memory opens and closes");
  }
  [[nodiscard]] std::size_t idle(int pool) {
    const std::scoped_lock lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [size, blocks] : free_[pool]) bytes += size * blocks.size();
    return bytes;
  }
  [[nodiscard]] int allocations(int pool) {
    const std::scoped_lock lock(mutex_);
    return allocations_[pool];
  }
  void cap(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    cap_ = bytes;
  }
  void close(bool closes) {
    closes_ = true;
    open(!closes);
    closes_ = closes;
  }
  static Memory& all() {
    static Memory& memory = *new Memory;  // never destroyed: tensors of static lifetime
    return memory;
  }

 private:
  struct Block {
    std::size_t size;
    int pool;
  };

  std::byte* take(std::size_t size, int pool) {
    const std::scoped_lock lock(mutex_);
    if (in_use_ + size > cap_)
      throw EnvironmentError(
          device::no_gpu_memory_text({device::current_account().category, device::Space::device},
                                     {static_cast<std::int64_t>(size)}, {static_cast<std::int64_t>(in_use_)},
                                     {static_cast<std::int64_t>(in_use_)}, {static_cast<std::int64_t>(cap_)}));
    ++allocations_[pool];
    std::vector<std::byte*>& same = free_[pool][size];
    std::byte* data = nullptr;
    if (same.empty()) {
      data = begin_ + used_;
      invariant(used_ + size <= room, "the made-up GPU has 8 GiB");
      used_ += size;
    } else {
      data = same.back();
      same.pop_back();
    }
    in_use_ += size;
    blocks_[data] = {size, pool};
    return data;
  }
  static void free(void* data) {
    Memory& here = all();
    device::gpu_charges().freed(data);
    const Block block = [&] {
      const std::scoped_lock lock(here.mutex_);
      return here.blocks_.at(static_cast<std::byte*>(data));
    }();
    fill(data, block.size);
    const std::scoped_lock lock(here.mutex_);
    here.blocks_.erase(static_cast<std::byte*>(data));
    here.free_[block.pool][block.size].push_back(static_cast<std::byte*>(data));
    here.in_use_ -= block.size;
  }
  /// NaN in fp32, bf16 and fp64; in the order of the device's work, as all that is done to its memory.
  static void fill(void* data, std::size_t size) {
    submit([=] { std::memset(data, 0xff, size); });
  }

  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  std::atomic<std::size_t> used_ = 0;
  std::size_t in_use_ = 0, cap_ = room;
  bool closes_ = false;
  std::map<std::byte*, Block> blocks_;
  std::map<int, std::map<std::size_t, std::vector<std::byte*>>> free_;
  std::map<int, int> allocations_;
};

std::recursive_mutex& turn() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return mutex;
}
int depth = 0;  // of Running, of the thread whose turn it is

/// Our kernels, and the allocator, are there before the first tensor.
[[maybe_unused]] const bool in_place = [] {
  (void)Memory::all();
  test::launcher = [](const std::function<void()>& work) { submit(work); };
  return true;
}();

}  // namespace

Running::Running() {
  turn().lock();
  ++depth;
  Memory::all().open(true);  // there may be more of it than before
}

Running::~Running() {
  if (--depth == 0) Memory::all().open(false);
  turn().unlock();
}

Recording*& recording() {
  thread_local Recording* now = nullptr;
  return now;
}

void submit(std::function<void()> work) {
  if (recording() != nullptr) {
    recording()->work.push_back(std::move(work));
    return;
  }
  const Running now;
  work();
}

c10::Allocator& memory() { return Memory::all(); }
bool is_there(const void* address) { return Memory::all().holds(address); }
int new_pool() {
  static int pools = 0;
  return ++pools;
}
std::size_t idle_bytes(int pool) { return Memory::all().idle(pool); }
int allocations_of(int pool) { return Memory::all().allocations(pool); }
void cap(std::size_t bytes) { Memory::all().cap(bytes); }
void close_memory(bool closes) {
  const Running now;
  Memory::all().close(closes);
}

}  // namespace trireme::test::gpu
