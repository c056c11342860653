// SPDX-License-Identifier: Apache-2.0
//
// A communicator of the simulated NCCL: ranks are processes that share a file in memory.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <thread>
#include <utility>

#include "nccl.h"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/base/error.hpp"

namespace trireme::test::gpu::nccl {

constexpr std::size_t slot_bytes = std::size_t{4} << 20;
constexpr int most_ranks = 64;
/// What a launch takes at least: long enough for whoever does not wait for it to be found inside.
constexpr std::chrono::microseconds launch_time{200};

/// Windows that communicators still had when they were finalized.
inline std::atomic<int> left_windows = 0;

/// What the ranks of a communicator share: a place for each of them, and a meeting of all.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> meetings;
  std::atomic<bool> aborted;
};
constexpr std::size_t head_bytes = 4096, shared_bytes = head_bytes + most_ranks * slot_bytes;

}  // namespace trireme::test::gpu::nccl

struct ncclWindow {
  const std::byte* memory;
  std::size_t bytes;
};

struct ncclComm {
  int rank, size;
  trireme::test::gpu::nccl::Shared* shared;
  std::atomic<pid_t> user = 0;  ///< the thread that is inside, or whose launch is not known to have ended; 0: none
  std::thread job;              ///< what was launched last, until it is joined
  std::atomic<bool> launched = false;
  ncclResult_t result = ncclSuccess;
  std::list<ncclWindow> windows;

  [[nodiscard]] bool in_a_window(const void* begin, std::size_t bytes) const {
    return std::any_of(windows.begin(), windows.end(), [&](const ncclWindow& w) {
      return begin >= w.memory && static_cast<const std::byte*>(begin) + bytes <= w.memory + w.bytes;
    });
  }
  /// Leaves `work` to a thread of its own.
  ncclResult_t launch(std::function<ncclResult_t()> work) {
    trireme::invariant(trireme::test::gpu::recording() == nullptr, "no collective is launched while work is recorded");
    trireme::invariant(!job.joinable(), "a launch ends before the next one");
    launched = false;
    job = std::thread([this, work = std::move(work), stream = trireme::test::gpu::current_stream()] {
      trireme::test::gpu::current_stream() = stream;
      std::this_thread::sleep_for(trireme::test::gpu::nccl::launch_time);
      result = work();
      launched = true;
    });
    return ncclInProgress;
  }

  [[nodiscard]] std::byte* slot(int of) const {
    namespace nccl = trireme::test::gpu::nccl;
    return reinterpret_cast<std::byte*>(shared) + nccl::head_bytes + static_cast<std::size_t>(of) * nccl::slot_bytes;
  }
  /// False where another rank has given up.
  [[nodiscard]] bool meet() const {
    const int now = shared->meetings;
    if (++shared->arrived == size) {
      shared->arrived = 0;
      ++shared->meetings;
    }
    while (shared->meetings == now) {
      if (shared->aborted) return false;
      sched_yield();
    }
    return true;
  }
  /// Every rank puts something in its place, all look at all places.
  ncclResult_t exchange(const std::function<void(std::byte* mine)>& put, const std::function<void()>& look) const {
    trireme::test::gpu::reach(trireme::test::gpu::moment(trireme::test::gpu::current_stream()));
    {
      const trireme::test::gpu::Running now;
      put(slot(rank));
    }
    if (!meet()) return ncclSystemError;
    {
      const trireme::test::gpu::Running now;
      look();
    }
    return meet() ? ncclSuccess : ncclSystemError;
  }
  /// The same by pieces of `bytes` that fit a place: piece(first, count) of `count` elements of `size`.
  ncclResult_t in_pieces(std::size_t count, std::size_t bytes,
                         const std::function<ncclResult_t(std::size_t, std::size_t)>& piece) const {
    const std::size_t most = std::max<std::size_t>(1, trireme::test::gpu::nccl::slot_bytes / bytes);
    for (std::size_t first = 0; first < count; first += most)
      if (const ncclResult_t result = piece(first, std::min(most, count - first)); result != ncclSuccess) return result;
    return ncclSuccess;
  }
};

namespace trireme::test::gpu::nccl {

/// The calling thread is inside a communicator: from the first call of a launch until the launch is joined.
class Inside {
 public:
  explicit Inside(ncclComm_t comm) : comm_(comm) {
    pid_t user = 0;
    if (comm->user.compare_exchange_strong(user, gettid()) || user == gettid()) return;
    std::fputs("simulated NCCL: two threads are inside one communicator\n", stderr);
    std::abort();
  }
  ~Inside() {
    if (!comm_->job.joinable()) comm_->user = 0;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ncclComm_t comm_;
};

}  // namespace trireme::test::gpu::nccl
