// SPDX-License-Identifier: Apache-2.0
#undef _FORTIFY_SOURCE  // it takes a jump to another stack for a mistake
#include <cuda_runtime.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "device/cuda/launch.cuh"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace trireme::test {

void (*launcher)(const std::function<void()>& run) = nullptr;

namespace {

enum class State { ready, at_block_barrier, at_warp_barrier, done };

/// A thread of a block. It is made once (makecontext) and changed to by _longjmp, which leaves signals alone:
/// swapcontext would enter the kernel twice a change.
struct Fibre {
  ucontext_t context{};
  std::unique_ptr<char[]> stack;
  jmp_buf at{};
  State state = State::done;
  std::uint64_t slot = 0;
};

constexpr std::size_t stack_bytes = 128 << 10;
constexpr unsigned warp = 32;
std::vector<Fibre> fibres(1024);
jmp_buf scheduler;
const std::function<void()>* body = nullptr;

void wait(State state) {
  Fibre& self = fibres[threadIdx.x];
  self.state = state;
  if (_setjmp(self.at) == 0) _longjmp(scheduler, 1);
}

void enter() {
  for (;;) {
    (*body)();
    wait(State::done);
  }
}

/// Lets a fibre run until it waits.
void resume(Fibre& fibre) {
  if (_setjmp(scheduler) != 0) return;
  if (fibre.stack) _longjmp(fibre.at, 1);
  fibre.stack = std::make_unique<char[]>(stack_bytes);
  getcontext(&fibre.context);
  fibre.context.uc_stack.ss_sp = fibre.stack.get();
  fibre.context.uc_stack.ss_size = stack_bytes;
  makecontext(&fibre.context, enter, 0);
  setcontext(&fibre.context);
}

/// Lets threads [begin, end) go on if all of them wait in `state`.
bool release(unsigned begin, unsigned end, State state) {
  const auto first = fibres.begin() + begin, last = fibres.begin() + end;
  if (!std::all_of(first, last, [&](const Fibre& f) { return f.state == state; })) return false;
  std::for_each(first, last, [](Fibre& f) { f.state = State::ready; });
  return true;
}

void run_block() {
  const unsigned threads = blockDim.x;
  for (unsigned t = 0; t < threads; ++t) fibres[t].state = State::ready;
  for (;;) {
    for (unsigned t = 0; t < threads; ++t) {
      if (fibres[t].state != State::ready) continue;
      threadIdx.x = t;
      resume(fibres[t]);
    }
    if (std::all_of(fibres.begin(), fibres.begin() + threads, [](const Fibre& f) { return f.state == State::done; }))
      return;
    bool released = release(0, threads, State::at_block_barrier);
    for (unsigned t = 0; t < threads; t += warp) released |= release(t, t + warp, State::at_warp_barrier);
    if (released) continue;
    std::fprintf(stderr, "a kernel has a barrier or a shuffle that not every thread reaches\n");
    std::abort();
  }
}

}  // namespace

std::uint64_t exchange_in_warp(std::uint64_t bits, int step) {
  const unsigned self = threadIdx.x;
  fibres[self].slot = bits;
  wait(State::at_warp_barrier);
  const std::uint64_t other = fibres[self ^ static_cast<unsigned>(step)].slot;
  wait(State::at_warp_barrier);
  return other;
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  if (block.x == 0 || block.x % warp != 0 || block.x > fibres.size() || block.y * block.z != 1) std::abort();
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

void __syncthreads() { trireme::test::wait(trireme::test::State::at_block_barrier); }

namespace trireme::device::cuda {

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
