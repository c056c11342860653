// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_gpu/engine.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "device/gpu_charges.hpp"
#include "kernels/on_host/cuda_runtime.h"
#include "trireme/base/error.hpp"
#include "trireme/device/allocator.hpp"

namespace trireme::test::gpu {
namespace {

constexpr std::size_t room = std::size_t{8} << 30, granule = 512, page = 4096;

/// All of the device's memory, in one place, so that one call opens and closes it.
class Memory final : public c10::Allocator {
 public:
  Memory() {
    void* const begin = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    invariant(begin != MAP_FAILED, "there is room for the addresses of a simulated GPU");
    begin_ = static_cast<std::byte*>(begin);
    c10::SetAllocator(c10::DeviceType::CUDA, this);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device here(c10::DeviceType::CUDA, 0);
    if (bytes == 0) return {nullptr, here};
    const std::size_t size = (bytes + granule - 1) / granule * granule;
    std::byte* const data = take(size, {recording() != nullptr ? recording()->pool : 0, current_stream()});
    device::gpu_charges().allocated(data, size);
    submit([=] { fill(data, size); });
    return {data, data, &Memory::free, here};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Memory::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const Running now;
    std::memcpy(to, from, bytes);
  }

  [[nodiscard]] bool holds(const void* address) const { return address >= begin_ && address < begin_ + room; }
  void open(bool access) {
    if (!closes_ || used_ == closed_from_) return;
    invariant(mprotect(begin_ + closed_from_, used_ - closed_from_, access ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
              "the simulated GPU's memory opens and closes");
  }
  [[nodiscard]] std::size_t idle(int pool) {
    const std::scoped_lock lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [home, sizes] : free_)
      for (const auto& [size, blocks] : sizes)
        if (home.pool == pool) bytes += size * blocks.size();
    return bytes;
  }
  void cap(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    cap_ = bytes;
  }
  void close(bool closes) {
    if (closes) {
      // Later allocations take new memory: opening all memory of earlier tests would take most of the time.
      const std::scoped_lock lock(mutex_);
      free_.clear();
      closed_from_ = used_ = (used_ + page - 1) / page * page;
    }
    open(true);
    closes_ = closes;
  }
  static Memory& all() {
    static Memory& memory = *new Memory;  // never destroyed: tensors of static lifetime
    return memory;
  }

  void used_on(const void* block, c10::StreamId stream) {
    const std::scoped_lock lock(mutex_);
    blocks_.at(static_cast<const std::byte*>(block)).used_on.insert(stream);
  }

 private:
  /// Pool and stream of a block.
  struct Home {
    int pool;
    c10::StreamId stream;
    friend auto operator<=>(const Home&, const Home&) = default;
  };
  struct Block {
    std::size_t size;
    Home home;
    std::set<c10::StreamId> used_on{};
  };

  std::byte* take(std::size_t size, Home home) {
    const std::scoped_lock lock(mutex_);
    if (in_use_ + size > cap_)
      throw EnvironmentError(
          device::no_gpu_memory_text({device::current_account().category, device::Space::device},
                                     {static_cast<std::int64_t>(size)}, {static_cast<std::int64_t>(in_use_)},
                                     {static_cast<std::int64_t>(in_use_)}, {static_cast<std::int64_t>(cap_)}));
    std::vector<std::byte*>& same = free_[home][size];
    std::byte* data = nullptr;
    if (same.empty()) {
      data = begin_ + used_;
      invariant(used_ + size <= room, "the simulated GPU has 8 GiB");
      used_ += size;
    } else {
      data = same.back();
      same.pop_back();
    }
    in_use_ += size;
    blocks_[data] = {size, home};
    return data;
  }
  static void free(void* data) {
    Memory& here = all();
    device::gpu_charges().freed(data);
    const Block block = [&] {
      const std::scoped_lock lock(here.mutex_);
      return here.blocks_.extract(static_cast<const std::byte*>(data)).mapped();
    }();
    for (const c10::StreamId stream : block.used_on) hold_up(block.home.stream, moment(stream));
    submit(block.home.stream, [=, size = block.size] { fill(data, size); });
    const std::scoped_lock lock(here.mutex_);
    here.free_[block.home][block.size].push_back(static_cast<std::byte*>(data));
    here.in_use_ -= block.size;
  }
  /// NaN in fp32, bf16 and fp64.
  static void fill(void* data, std::size_t size) { std::memset(data, 0xff, size); }

  std::mutex mutex_;
  std::byte* begin_ = nullptr;
  std::atomic<std::size_t> used_ = 0;
  std::size_t in_use_ = 0, cap_ = room, closed_from_ = 0;
  bool closes_ = false;
  std::map<const std::byte*, Block> blocks_;
  std::map<Home, std::map<std::size_t, std::vector<std::byte*>>> free_;
};

std::recursive_mutex& turn() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return mutex;
}
int depth = 0;  // of Running, in the thread that holds the turn

/// Work, or what is waited for in place of it.
struct Item {
  std::function<void()> work;
  std::function<bool()> done{};  ///< null: when `work` has run
};

/// Work launched on a stream that has not run.
struct Queue {
  std::deque<Item> work;
  std::int64_t launched = 0, done = 0;
  bool runs = false;
};
/// Requires the turn.
std::map<c10::StreamId, Queue>& queues() {
  static std::map<c10::StreamId, Queue>& all = *new std::map<c10::StreamId, Queue>;
  return all;
}

/// TRIREME_SIMULATED_GPU, or what holds without.
std::string_view how() {
  static const std::string_view is = [] {
    const char* const said = std::getenv("TRIREME_SIMULATED_GPU");
    const std::string_view given = said == nullptr ? "at once" : said;
    invariant(said == nullptr || given == "late" || given == "compute late" || given == "concurrent",
              "TRIREME_SIMULATED_GPU is unset, late, compute late or concurrent");
    return given;
  }();
  return is;
}

/// Offset of a function in its executable, as `nm` prints it.
std::uintptr_t offset_of(const void* function) {
  Dl_info found{};
  invariant(dladdr(function, &found) != 0, "a kernel is in no executable");
  return reinterpret_cast<std::uintptr_t>(function) - reinterpret_cast<std::uintptr_t>(found.dli_fbase);
}

/// Our kernels, and the allocator, are there before the first tensor.
[[maybe_unused]] const bool in_place = [] {
  (void)Memory::all();
  (void)how();
  test::launcher = [](const std::function<void()>& work) { submit(work); };
  test::launch_listener = [](const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes) {
    if (launch_listener())
      launch_listener()(kernel == nullptr
                            ? fmt::format("cublasLt product {} x {} x {}", grid.x, grid.y, grid.z)
                            : fmt::format("kernel +{:#x}, grid {} x {} x {}, block {} x {} x {}, {} shared bytes",
                                          offset_of(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                          shared_bytes));
  };
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

namespace {
std::atomic<std::int64_t> waits = 0;
}  // namespace

std::int64_t host_waits() { return waits; }
void wait_for(const Moment& moment) {
  ++waits;
  reach(moment);
}

bool late() { return how() != "at once"; }
bool concurrent() { return how() == "concurrent"; }

namespace {

thread_local bool device_thread = false;

/// Runs what is ready at the head of each stream; whether there was anything.
bool run_heads() {
  const Running now;
  bool any = false;
  for (auto& [id, queue] : queues()) {
    for (int i = 0; i < 32 && !queue.work.empty(); ++i) {
      if (queue.work.front().done && !queue.work.front().done()) break;
      const Item item = std::move(queue.work.front());
      queue.work.pop_front();
      if (item.work) item.work();
      ++queue.done;
      any = true;
    }
  }
  return any;
}

void start_device() {
  static const bool started = [] {
    std::thread([] {
      device_thread = true;
      for (;;) {
        const bool any = run_heads();
        std::this_thread::sleep_for(std::chrono::microseconds(any ? 1 : 50));  // lets a launching thread take its turn
      }
    }).detach();
    return true;
  }();
  static_cast<void>(started);
}

}  // namespace

c10::StreamId& current_stream() {
  thread_local c10::StreamId now = 0;
  return now;
}

std::function<void(const std::string&)>& launch_listener() {
  static auto& listener = *new std::function<void(const std::string&)>;
  return listener;
}

void submit(std::function<void()> work) { submit(current_stream(), std::move(work)); }

void submit(c10::StreamId stream, std::function<void()> work) {
  if (recording() != nullptr) return recording()->work.push_back(std::move(work));
  const Running now;
  if (!late()) return work();
  Queue& queue = queues()[stream];
  queue.work.push_back({std::move(work)});
  ++queue.launched;
  if (concurrent()) return start_device();
  const bool computes = stream == 0;
  if (how() == "compute late" && !computes && !queue.runs) reach({stream, queue.launched});
}

Moment moment(c10::StreamId stream) {
  const Running now;
  return {stream, queues()[stream].launched};
}

bool is_done(const Moment& moment) {
  const Running now;
  return queues()[moment.stream].done >= moment.launched;
}

void hold_up(c10::StreamId stream, const Moment& moment) {
  if (concurrent() && recording() == nullptr)
    hold_up(stream, [moment] { return is_done(moment); });
  else
    submit(stream, [moment] { reach(moment); });
}

void hold_up(c10::StreamId stream, std::function<bool()> done) {
  invariant(concurrent() && recording() == nullptr, "only a concurrent device is held up");
  const Running now;
  Queue& queue = queues()[stream];
  queue.work.push_back({nullptr, std::move(done)});
  ++queue.launched;
  start_device();
}

void reach(const Moment& moment) {
  if (concurrent()) {
    invariant(!device_thread || is_done(moment), "the device's own thread waits for nothing");
    while (!is_done(moment)) std::this_thread::sleep_for(std::chrono::microseconds(20));
    return;
  }
  const Running now;
  Queue& queue = queues()[moment.stream];
  while (queue.done < moment.launched) {
    invariant(!std::exchange(queue.runs, true), "streams wait for each other in a circle");
    const Item item = std::move(queue.work.front());
    queue.work.pop_front();
    item.work();
    queue.runs = false;
    ++queue.done;
  }
}

namespace {
std::atomic<bool> held = false;
}  // namespace
void hold_events(bool holds) { held = holds; }
bool events_are_held() { return held; }

namespace {
std::atomic<bool> failing = false;
}  // namespace
void fail_events(bool fails) { failing = fails; }
bool events_fail() { return failing; }

int& taken_gpu() {
  static int gpu = 0;
  return gpu;
}

c10::Allocator& memory() { return Memory::all(); }
bool is_there(const void* address) { return Memory::all().holds(address); }
int new_pool() {
  static int pools = 0;
  return ++pools;
}
std::size_t idle_bytes(int pool) { return Memory::all().idle(pool); }
void cap(std::size_t bytes) { Memory::all().cap(bytes); }
void used_on(const void* block, c10::StreamId stream) { Memory::all().used_on(block, stream); }
void close_memory(bool closes) {
  const Running now;
  Memory::all().close(closes);
}

}  // namespace trireme::test::gpu
