// SPDX-License-Identifier: Apache-2.0
//
// A communicator of the simulated NCCL: ranks are processes that share a file in memory.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "nccl.h"
#include "support/simulated_gpu/engine.hpp"
#include "trireme/base/error.hpp"

namespace trireme::test::gpu::nccl {

constexpr std::size_t slot_bytes = std::size_t{4} << 20;
constexpr int most_ranks = 64;
/// Minimum duration of a launch: long enough to find a second thread inside that does not wait for it.
constexpr std::chrono::microseconds launch_time{200};

/// Whether the calling thread has begun a group and not ended it.
[[nodiscard]] bool group_is_open();

/// Windows that communicators still had when they were finalized; all that were registered.
inline std::atomic<int> left_windows = 0, registered_windows = 0;

/// Time that a collective is pending on a concurrent device after its begin.
constexpr std::chrono::microseconds pending_time{500};

/// Memory shared by the ranks of a communicator: a slot for each of them, and a barrier of all.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> meetings;
  std::array<std::atomic<pid_t>, most_ranks> process;
  std::array<std::atomic<bool>, most_ranks> left;  ///< aborted by that rank
};

/// State of pending collectives, which may outlive the communicator.
struct Pending {
  std::atomic<bool> aborted = false;
  std::atomic<std::int64_t> issued = 0, finished = 0;
  std::atomic<int> running = 0;
};

/// Whether a process has ended, zombies included.
inline bool has_ended(pid_t process) {
  if (process == 0) return false;
  if (kill(process, 0) != 0) return true;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return true;
  const std::size_t name_ends = text.rfind(')');
  return text[name_ends + 2] == 'Z' || text[name_ends + 2] == 'X';
}

/// Whether the end of a rank is an error on its neighbours.
inline bool reports_ends() {
  static const bool reports = [] {
    const char* const how = std::getenv("TRIREME_SIMULATED_NCCL");
    return how == nullptr || std::string_view(how) != "silent";
  }();
  return reports;
}

inline std::atomic<int> pending_at_launches = 0;

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
  std::atomic<ncclResult_t> result = ncclSuccess;
  mutable std::atomic<bool> lost = false;  ///< a neighbour has ended
  std::list<ncclWindow> windows;
  std::string error;  ///< ncclGetLastError
  std::shared_ptr<trireme::test::gpu::nccl::Pending> pending = std::make_shared<trireme::test::gpu::nccl::Pending>();

  [[nodiscard]] bool in_a_window(const void* begin, std::size_t bytes) const {
    return std::any_of(windows.begin(), windows.end(), [&](const ncclWindow& w) {
      return begin >= w.memory && static_cast<const std::byte*>(begin) + bytes <= w.memory + w.bytes;
    });
  }
  /// Runs `work` on a new thread. collective: describes work of the stream, which on a concurrent device is launched
  /// only; empty: work of the host.
  ncclResult_t launch(std::function<ncclResult_t()> work, const std::string& collective = {}) {
    namespace nccl = trireme::test::gpu::nccl;
    trireme::invariant(trireme::test::gpu::recording() == nullptr, "no collective is launched while work is recorded");
    trireme::invariant(!job.joinable(), "a launch ends before the next one");
    launched = false;
    if (!collective.empty() && trireme::test::gpu::launch_listener())
      trireme::test::gpu::launch_listener()(collective + ", " + std::to_string(size) + " ranks");
    job = std::thread(
        [this, work = std::move(work), launches = !collective.empty(), stream = trireme::test::gpu::current_stream()] {
          trireme::test::gpu::current_stream() = stream;
          std::this_thread::sleep_for(nccl::launch_time);
          if (launches && trireme::test::gpu::concurrent()) {
            put_on(stream, work);
          } else {
            while (pending->finished < pending->issued && !pending->aborted)
              std::this_thread::sleep_for(nccl::launch_time);
            if (const ncclResult_t done = work(); done != ncclSuccess) result = done;
          }
          launched = true;
        });
    return ncclInProgress;
  }
  /// `work` begins on a new thread when the stream and the communicator have come to it, and holds up the
  /// stream.
  void put_on(c10::StreamId stream, std::function<ncclResult_t()> work) {
    namespace nccl = trireme::test::gpu::nccl;
    if (pending->finished < pending->issued) ++nccl::pending_at_launches;
    const auto ended = std::make_shared<std::atomic<bool>>(false);
    trireme::test::gpu::hold_up(stream, [this, pending = pending, ended, work = std::move(work),
                                         ticket = pending->issued++, begun = false]() mutable {
      if (begun) return ended->load();
      if (pending->aborted) return true;
      if (pending->finished < ticket) return false;
      begun = true;
      ++pending->running;
      std::thread([this, pending, ended, work = std::move(work)] {
        std::this_thread::sleep_for(nccl::pending_time);
        if (const ncclResult_t done = work(); done != ncclSuccess) {
          result = done;  // the kernel spins until the communicator is aborted
          while (!pending->aborted) std::this_thread::sleep_for(nccl::launch_time);
        }
        *ended = true;
        ++pending->finished;
        --pending->running;
      }).detach();
      return false;
    });
  }

  [[nodiscard]] std::byte* slot(int of) const {
    namespace nccl = trireme::test::gpu::nccl;
    return reinterpret_cast<std::byte*>(shared) + nccl::head_bytes + static_cast<std::size_t>(of) * nccl::slot_bytes;
  }
  /// False if another rank has given up.
  [[nodiscard]] bool meet() const {
    const int now = shared->meetings;
    if (++shared->arrived == size) {
      shared->arrived = 0;
      ++shared->meetings;
    }
    for (int looks = 0; shared->meetings == now; ++looks) {
      if (pending->aborted) return false;
      if (looks % 1000 == 999 && trireme::test::gpu::nccl::reports_ends() && neighbour_has_ended()) {
        lost = true;
        return false;
      }
      if (looks < 20000)
        sched_yield();
      else
        std::this_thread::sleep_for(trireme::test::gpu::nccl::launch_time);
    }
    return true;
  }
  [[nodiscard]] bool neighbour_has_ended() const {
    for (const int other : {(rank + 1) % size, (rank + size - 1) % size}) {
      const auto of = static_cast<std::size_t>(other);
      if (other != rank && (shared->left[of] || trireme::test::gpu::nccl::has_ended(shared->process[of]))) return true;
    }
    return false;
  }
  [[nodiscard]] ncclResult_t not_met() const { return lost ? ncclRemoteError : ncclSystemError; }
  /// Every rank writes its slot, then all read all slots.
  ncclResult_t exchange(const std::function<void(std::byte* mine)>& put, const std::function<void()>& look) const {
    if (!trireme::test::gpu::concurrent())
      trireme::test::gpu::reach(trireme::test::gpu::moment(trireme::test::gpu::current_stream()));
    {
      const trireme::test::gpu::Running now;
      put(slot(rank));
    }
    if (!meet()) return not_met();
    {
      const trireme::test::gpu::Running now;
      look();
    }
    return meet() ? ncclSuccess : not_met();
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
