// SPDX-License-Identifier: Apache-2.0
#include "nccl.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/simulated_gpu/engine.hpp"
#include "trireme/base/error.hpp"

using trireme::invariant;
using trireme::test::gpu::current_stream;
using trireme::test::gpu::is_there;
using trireme::test::gpu::recording;
using trireme::test::gpu::Running;

namespace {

constexpr std::size_t slot_bytes = std::size_t{4} << 20;
constexpr int most_ranks = 64;
/// What a launch takes at least: long enough for whoever does not wait for it to be found inside.
constexpr std::chrono::microseconds launch_time{200};
std::atomic<int> times_in_progress = 0;

/// What the ranks of a communicator share: a place for each of them, and a meeting of all.
struct Shared {
  std::atomic<int> arrived;
  std::atomic<int> meetings;
  std::atomic<bool> aborted;
};
constexpr std::size_t head_bytes = 4096, shared_bytes = head_bytes + most_ranks * slot_bytes;

std::size_t size_of(ncclDataType_t type) { return type == ncclInt8 ? 1 : type == ncclBfloat16 ? 2 : 4; }

}  // namespace

struct ncclComm {
  int rank, size;
  Shared* shared;
  std::atomic<pid_t> user = 0;  ///< the thread that is inside, or whose launch is not known to have ended; 0: none
  std::thread job;              ///< what was launched last, until it is joined
  std::atomic<bool> launched = false;
  ncclResult_t result = ncclSuccess;

  /// Leaves `work` to a thread of its own.
  ncclResult_t launch(std::function<ncclResult_t()> work) {
    invariant(recording() == nullptr, "no collective is launched while work is recorded");
    invariant(!job.joinable(), "a launch ends before the next one");
    launched = false;
    job = std::thread([this, work = std::move(work), stream = current_stream()] {
      current_stream() = stream;
      std::this_thread::sleep_for(launch_time);
      result = work();
      launched = true;
    });
    return ncclInProgress;
  }

  [[nodiscard]] std::byte* slot(int of) const {
    return reinterpret_cast<std::byte*>(shared) + head_bytes + static_cast<std::size_t>(of) * slot_bytes;
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
    trireme::test::gpu::reach(trireme::test::gpu::moment(current_stream()));
    {
      const Running now;
      put(slot(rank));
    }
    if (!meet()) return ncclSystemError;
    {
      const Running now;
      look();
    }
    return meet() ? ncclSuccess : ncclSystemError;
  }
  /// The same by pieces of `bytes` that fit a place: piece(first, count) of `count` elements of `size`.
  ncclResult_t in_pieces(std::size_t count, std::size_t bytes,
                         const std::function<ncclResult_t(std::size_t, std::size_t)>& piece) const {
    const std::size_t most = std::max<std::size_t>(1, slot_bytes / bytes);
    for (std::size_t first = 0; first < count; first += most)
      if (const ncclResult_t result = piece(first, std::min(most, count - first)); result != ncclSuccess) return result;
    return ncclSuccess;
  }
};

namespace {

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

struct Message {
  ncclComm_t over;
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
  int peer;
};
thread_local std::vector<Message> group;
thread_local bool grouping = false;

void on_the_gpu(const void* from, const void* to) {
  invariant(is_there(from) && is_there(to), "NCCL moves tensors on GPUs only");
}

/// to[i] = the sum over ranks, from 0 on, of what they put from `offset` on.
void sum_of_slots(const ncclComm& over, std::size_t offset, std::size_t count, float* to) {
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < over.size; ++r) sum += reinterpret_cast<const float*>(over.slot(r))[offset + i];
    to[i] = sum;
  }
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> ids = 0;
  const std::string directory = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
  // Numbers of processes come again, and a job that was killed may have left a file behind.
  std::snprintf(id->name.data(), id->name.size(), "%s/trireme-simulated-nccl-%d-%d-%lld", directory.c_str(), getpid(),
                ids++, static_cast<long long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  const int file = open(id->name.data(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(shared_bytes)) != 0) return ncclSystemError;
  close(file);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (ranks > most_ranks || config->blocking != 0) return ncclInvalidArgument;
  const int file = open(id.name.data(), O_RDWR);
  if (file < 0) return ncclSystemError;
  void* const shared = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return ncclSystemError;
  *made = new ncclComm{rank, ranks, static_cast<Shared*>(shared)};
  const Inside inside(*made);
  return (*made)->launch([over = *made, id] {
    if (!over->meet()) return ncclSystemError;
    if (over->rank == 0) unlink(id.name.data());
    return ncclSuccess;
  });
}

int ncclTimesInProgress() { return times_in_progress; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t* state) {
  const Inside inside(of);
  *state = ncclInProgress;
  if (of->job.joinable()) {
    if (!of->launched) {
      ++times_in_progress;
      return ncclSuccess;
    }
    of->job.join();
  }
  *state = of->shared->aborted ? ncclSystemError : of->result;
  return ncclSuccess;
}
/// Any thread may abort.
ncclResult_t ncclCommAbort(ncclComm_t of) {
  of->shared->aborted = true;
  return ncclCommDestroy(of);
}
/// Like NCCL's, ended when all ranks have called it.
ncclResult_t ncclCommFinalize(ncclComm_t of) {
  const Inside inside(of);
  return of->launch([of] { return of->meet() ? ncclSuccess : ncclSystemError; });
}
ncclResult_t ncclCommDestroy(ncclComm_t of) {
  if (of->job.joinable()) of->job.join();
  munmap(of->shared, shared_bytes);
  delete of;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "simulated NCCL failed";
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t over,
                           cudaStream_t) {
  on_the_gpu(from, to);
  const Inside inside(over);
  const std::size_t bytes = count * size_of(type);
  return over->launch([=] {
    return over->in_pieces(bytes, 1, [&](std::size_t first, std::size_t some) {
      return over->exchange(
          [&](std::byte* mine) { std::memcpy(mine, static_cast<const std::byte*>(from) + first, some); },
          [&] {
            for (int r = 0; r < over->size; ++r)
              std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(r) * bytes + first, over->slot(r),
                          some);
          });
    });
  });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  invariant(type == ncclFloat32, "simulated NCCL sums fp32");
  const Inside inside(over);
  const auto size = static_cast<std::size_t>(over->size);
  return over->launch([=] {
    return over->in_pieces(count, 4 * size, [&](std::size_t first, std::size_t some) {
      return over->exchange(
          [&](std::byte* mine) {
            for (std::size_t r = 0; r < size; ++r)
              std::memcpy(mine + 4 * r * some, static_cast<const float*>(from) + r * count + first, 4 * some);
          },
          [&] {
            sum_of_slots(*over, static_cast<std::size_t>(over->rank) * some, some, static_cast<float*>(to) + first);
          });
    });
  });
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  invariant(type == ncclFloat32, "simulated NCCL sums fp32");
  const Inside inside(over);
  return over->launch([=] {
    return over->in_pieces(count, 4, [&](std::size_t first, std::size_t some) {
      return over->exchange(
          [&](std::byte* mine) { std::memcpy(mine, static_cast<const float*>(from) + first, 4 * some); },
          [&] { sum_of_slots(*over, 0, some, static_cast<float*>(to) + first); });
    });
  });
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t over, cudaStream_t) {
  on_the_gpu(from, to);
  const Inside inside(over);
  return over->launch([=] {
    return over->in_pieces(count * size_of(type), 1, [&](std::size_t first, std::size_t some) {
      return over->exchange(
          [&](std::byte* mine) { std::memcpy(mine, static_cast<const std::byte*>(from) + first, some); },
          [&] { std::memcpy(static_cast<std::byte*>(to) + first, over->slot(root), some); });
    });
  });
}

ncclResult_t ncclGroupStart() {
  grouping = true;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over,
                      cudaStream_t) {
  invariant(grouping && is_there(from), "messages are sent in groups, from GPUs");
  group.push_back({over, static_cast<const std::byte*>(from), nullptr, count * size_of(type), peer});
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t over, cudaStream_t) {
  invariant(grouping && is_there(to), "messages are received in groups, on GPUs");
  group.push_back({over, nullptr, static_cast<std::byte*>(to), count * size_of(type), peer});
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  grouping = false;
  const std::vector<Message> messages = std::exchange(group, {});
  if (messages.empty()) return ncclSuccess;
  const ncclComm_t over = messages.front().over;
  const std::size_t bytes = messages.front().bytes;
  for (const Message& m : messages)
    invariant(m.over == over && m.bytes == bytes, "messages of a group are of one size");
  const Inside inside(over);
  return over->launch([=] {
    return over->in_pieces(bytes, static_cast<std::size_t>(over->size), [&](std::size_t first, std::size_t some) {
      return over->exchange(
          [&](std::byte* mine) {
            for (const Message& m : messages)
              if (m.from != nullptr) std::memcpy(mine + static_cast<std::size_t>(m.peer) * some, m.from + first, some);
          },
          [&] {
            for (const Message& m : messages)
              if (m.to != nullptr)
                std::memcpy(m.to + first, over->slot(m.peer) + static_cast<std::size_t>(over->rank) * some, some);
          });
    });
  });
}
