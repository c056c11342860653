// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "device/cuda/launch.cuh"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace trireme::test {

void (*launcher)(const std::function<void()>& run) = nullptr;
void (*launch_listener)(const void*, dim3, dim3, std::size_t) = nullptr;

namespace {

constexpr std::size_t stack_bytes = 128 << 10;
constexpr unsigned warp = 32, most = 1024, none = most;

/// A stack on which threads run one after the other: a thread that waits keeps its stack, and the next one takes
/// another. So a kernel without barriers changes no stack at all.
struct Fibre {
  std::unique_ptr<char[]> stack;
  ucontext_t context{};
  std::array<void*, 5> at{};  ///< of __builtin_setjmp, which saves little and leaves signals alone
};

enum class State { fresh, ready, at_block_barrier, at_warp_barrier, done };
std::array<State, most> states;             // by thread of the block
std::array<Fibre*, most> fibre_of;          // of a thread that has begun
std::array<std::uint64_t, 2 * most> slots;  // what threads give to an exchange: the next one has the other half
std::array<unsigned, most> exchanges;       // of a thread, counted
std::array<unsigned, most / warp> at_warp_barriers;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};
struct Copies {
  std::vector<std::vector<Copy>> groups;
  std::vector<Copy> open;  // of the group that ends next
};
std::array<Copies, most> copies;  // of a thread
std::vector<uint4> shared;
constexpr std::size_t allowed_to_all = (48 << 10) - 512;  // what kernels declare counts
std::size_t allowed = allowed_to_all;
unsigned at_block_barrier = 0, done = 0;

Fibre main_fibre;
std::vector<std::unique_ptr<Fibre>> fibres;
std::vector<Fibre*> idle;
const std::function<void()>* body = nullptr;

void run_threads(Fibre& self);

void enter() { run_threads(*fibre_of[threadIdx.x]); }

[[noreturn, gnu::noinline]] void begin(Fibre& fibre) {
  fibre.stack = std::make_unique<char[]>(stack_bytes);
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = fibre.stack.get();
  // Not all at the same place of a page, which would be the same places of a cache.
  fibre.context.uc_stack.ss_size = stack_bytes - fibres.size() * 5 % 128 * 64;
  makecontext(&fibre.context, enter, 0);
  setcontext(&fibre.context);
  std::abort();
}

/// Switches without a call instruction: a return address that is never returned to would make the processor mispredict
/// all later returns.
[[gnu::noinline]] void change(Fibre& from, Fibre& to) {
  if (__builtin_setjmp(from.at.data()) != 0) return;
  if (&to != &main_fibre && !to.stack) begin(to);
  __builtin_longjmp(to.at.data(), 1);
}

Fibre& idle_fibre() {
  if (idle.empty()) {
    fibres.push_back(std::make_unique<Fibre>());
    return *fibres.back();
  }
  Fibre& last = *idle.back();
  idle.pop_back();
  return last;
}

/// The next thread that can run, in the order of their numbers, after `self`.
unsigned next_after(unsigned self) {
  const unsigned threads = blockDim.x;
  for (unsigned t = self + 1; t < threads; ++t)
    if (states[t] <= State::ready) return t;
  for (unsigned t = 0; t <= self; ++t)
    if (states[t] <= State::ready) return t;
  return none;
}

[[noreturn]] void fail() {
  std::fprintf(stderr, "a kernel has a barrier or a shuffle that not every thread reaches\n");
  std::abort();
}

/// Runs the current thread, and those after it that have not begun, as long as no other has to run first.
void run_threads(Fibre& self) {
  for (;;) {
    fibre_of[threadIdx.x] = &self;
    (*body)();
    states[threadIdx.x] = State::done;
    const bool over = ++done == blockDim.x;
    const unsigned next = over ? none : next_after(threadIdx.x);
    if (!over && next == none) fail();
    const bool fresh = !over && states[next] == State::fresh;
    if (!over) threadIdx.x = next;
    if (fresh) continue;
    if (&self != &main_fibre) idle.push_back(&self);
    if (&self != &main_fibre || !over) change(self, over ? main_fibre : *fibre_of[next]);
    if (&self == &main_fibre) return;  // which is gone back to when all are done
  }
}

/// Lets others run until all threads [begin, end) wait here.
void wait(State state, unsigned begin, unsigned end, unsigned& waiting) {
  const unsigned self = threadIdx.x;
  states[self] = state;
  unsigned next = begin;
  if (++waiting == end - begin) {
    waiting = 0;
    std::fill(states.begin() + begin, states.begin() + end, State::ready);
  } else {
    next = next_after(self);
    if (next == none) fail();
  }
  if (next == self) return;
  threadIdx.x = next;
  if (states[next] == State::fresh) fibre_of[next] = &idle_fibre();
  change(*fibre_of[self], *fibre_of[next]);
}

void run_block() {
  std::fill_n(states.begin(), blockDim.x, State::fresh);
  std::fill_n(exchanges.begin(), blockDim.x, 0);
  for (unsigned t = 0; t < blockDim.x; ++t) copies[t] = {};
  std::fill(shared.begin(), shared.end(), uint4{0x7fc07fc0, 0x7fc07fc0, 0x7fc07fc0, 0x7fc07fc0});  // NaN
  at_block_barrier = done = threadIdx.x = 0;
  run_threads(main_fibre);
}

}  // namespace

void allow_shared(std::size_t bytes) { allowed = bytes; }

std::uint64_t exchange_in_warp(std::uint64_t bits, int step) {
  const unsigned self = threadIdx.x, first = self / warp * warp;
  // A half is written again two exchanges later: by then all have met at the one between, and have read this one's.
  const unsigned half = exchanges[self]++ % 2 * most;
  slots[half + self] = bits;
  wait(State::at_warp_barrier, first, first + warp, at_warp_barriers[first / warp]);
  return slots[half + (self ^ static_cast<unsigned>(step))];
}

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread) {
  if (block.x == 0 || block.x % warp != 0 || block.x > most || block.y * block.z != 1) std::abort();
  if (shared_bytes > std::exchange(allowed, allowed_to_all)) {
    std::fprintf(stderr, "%zu bytes of shared memory are more than the kernel may have\n", shared_bytes);
    std::abort();
  }
  shared.resize((shared_bytes + sizeof(uint4) - 1) / sizeof(uint4));
  body = &thread;
  gridDim = grid;
  blockDim = block;
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      blockIdx = dim3(x, y);
      run_block();
    }
  }
}

}  // namespace trireme::test

void __syncthreads() {
  using namespace trireme::test;
  wait(State::at_block_barrier, 0, blockDim.x, at_block_barrier);
}

void* emulated_dynamic_shared() { return trireme::test::shared.data(); }

bool copies_at_once = false;

void emulated_copy(void* to, const void* from, std::size_t bytes) {
  if (copies_at_once)
    std::memcpy(to, from, bytes);
  else
    trireme::test::copies[threadIdx.x].open.push_back({to, from, bytes});
}

void emulated_end_copies() {
  auto& [groups, open] = trireme::test::copies[threadIdx.x];
  groups.push_back(std::exchange(open, {}));
}

void emulated_wait_for_copies(std::size_t left) {
  auto& groups = trireme::test::copies[threadIdx.x].groups;
  while (groups.size() > left) {
    for (const auto& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
    groups.erase(groups.begin());
  }
}

namespace trireme::device::cuda {

/// So much shared memory that rows of some ten thousand elements have parts there, seven packs a thread, in registers,
/// and in neither; so few multiprocessors that a block has several rows.
Chip emulated{
    .multiprocessors = 2, .shared_bytes = 124 << 10, .shared_bytes_a_block = 123 << 10, .reserved_bytes = 1 << 10};
const Chip& chip() { return emulated; }

void allow_shared_bytes(const void*, const char*, int bytes) { test::allow_shared(static_cast<std::size_t>(bytes)); }

cudaStream_t current_stream() { return nullptr; }

void check_launch(cudaError_t result, const char* kernel) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s was not started\n", kernel);
  std::abort();
}

}  // namespace trireme::device::cuda

namespace trireme::kernels::cuda {

bool multiplies_in_groups();
bool multiplies_in_groups() { return true; }

}  // namespace trireme::kernels::cuda
