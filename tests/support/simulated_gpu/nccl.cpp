// SPDX-License-Identifier: Apache-2.0
//
// Simulated NCCL: the life of communicators. What they do is in nccl_collectives.cpp.
#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/gpu_charges.hpp"
#include "support/simulated_gpu/engine.hpp"
#include "support/simulated_gpu/nccl_communicator.hpp"
#include "trireme/base/error.hpp"

using trireme::test::gpu::nccl::Inside;
using trireme::test::gpu::nccl::left_windows;
using trireme::test::gpu::nccl::most_ranks;
using trireme::test::gpu::nccl::Shared;
using trireme::test::gpu::nccl::shared_bytes;

namespace {

std::atomic<int> times_in_progress = 0, splits = 0, aborts = 0, queued_aborts = 0;
std::atomic<bool> ends_are_held = false, splits_are_held = false;
std::function<void()> at_init;

/// Identity of a rank for NCCL: its GPU and host id. Read once, as in NCCL.
struct Identity {
  int gpu = 0;
  std::array<char, 64> host{};
};
const Identity& own_identity() {
  static const Identity own = [] {
    Identity found{.gpu = trireme::test::gpu::taken_gpu()};
    const char* const id = std::getenv("NCCL_HOSTID");
    if (id != nullptr)
      std::snprintf(found.host.data(), found.host.size(), "id %s", id);
    else
      (void)gethostname(found.host.data(), found.host.size() - 1);
    return found;
  }();
  return own;
}

/// ncclInvalidUsage where two ranks have one GPU and one host id.
ncclResult_t refuse_duplicates(ncclComm_t over) {
  ncclResult_t result = ncclSuccess;
  const auto of = [&](int rank) { return reinterpret_cast<const Identity*>(over->slot(rank)); };
  const ncclResult_t met = over->exchange(
      [&](std::byte* mine) { std::memcpy(mine, &own_identity(), sizeof(Identity)); },
      [&] {
        for (int r = 0; r < over->size; ++r)
          if (r != over->rank && of(r)->gpu == own_identity().gpu && of(r)->host == own_identity().host) {
            over->error = "Duplicate GPU detected : rank " + std::to_string(over->rank) + " and rank " +
                          std::to_string(r) + " both on CUDA device " + std::to_string(own_identity().gpu);
            result = ncclInvalidUsage;
          }
      });
  return met == ncclSuccess ? result : met;
}
std::vector<int> max_ctas, cta_policies;  // communicators are made by one thread

void note(const ncclConfig_t& config) {
  max_ctas.push_back(config.maxCTAs);
  cta_policies.push_back(config.CTAPolicy);
}

/// Memory shared by the ranks of a new communicator; null if it cannot be mapped.
Shared* open_shared(const ncclUniqueId& id) {
  const int file = open(id.name.data(), O_RDWR);
  if (file < 0) return nullptr;
  void* const shared = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return shared == MAP_FAILED ? nullptr : static_cast<Shared*>(shared);
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

ncclResult_t ncclCommInitRankScalable(ncclComm_t* made, int ranks, int rank, int count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  if (ranks > most_ranks || count < 1 || count > ranks || config->blocking != 0) return ncclInvalidArgument;
  Shared* const shared = open_shared(ids[0]);
  if (shared == nullptr) return ncclSystemError;
  *made = new ncclComm{rank, ranks, shared};
  shared->process[static_cast<std::size_t>(rank)] = getpid();
  note(*config);
  const Inside inside(*made);
  return (*made)->launch([over = *made, all = std::vector<ncclUniqueId>(ids, ids + count)] {
    if (at_init) at_init();
    // Every rank has the same ids, each of another root.
    ncclResult_t same = ncclSuccess;
    const auto names = [&](int of) { return reinterpret_cast<const char*>(over->slot(of)); };
    const ncclResult_t met =
        over->exchange([&](std::byte* mine) { std::memcpy(mine, all.data(), all.size() * sizeof(ncclUniqueId)); },
                       [&] {
                         for (int r = 0; r < over->size; ++r)
                           if (std::memcmp(names(r), names(0), all.size() * sizeof(ncclUniqueId)) != 0)
                             same = ncclInvalidArgument;
                         for (std::size_t i = 1; i < all.size(); ++i)
                           if (all[i].name == all[i - 1].name) same = ncclInvalidArgument;
                       });
    if (over->rank == 0)
      for (const ncclUniqueId& id : all) unlink(id.name.data());
    if (met != ncclSuccess || same != ncclSuccess) return met == ncclSuccess ? same : met;
    return refuse_duplicates(over);
  });
}

ncclResult_t ncclCommSplit(ncclComm_t first, int colour, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (colour != 0 || key != first->rank || config->blocking != 0 || config->splitShare != 0) return ncclInvalidArgument;
  const Inside inside(first);
  *made = nullptr;
  note(*config);
  return first->launch([first, made] {
    while (splits_are_held) std::this_thread::sleep_for(trireme::test::gpu::nccl::launch_time);
    ncclUniqueId id{};
    ncclResult_t had = ncclSuccess;
    if (first->rank == 0) had = ncclGetUniqueId(&id);
    const ncclResult_t met = first->exchange([&](std::byte* mine) { std::memcpy(mine, &id, sizeof id); },
                                             [&] { std::memcpy(&id, first->slot(0), sizeof id); });
    if (had != ncclSuccess || met != ncclSuccess) return ncclSystemError;
    Shared* const shared = open_shared(id);
    if (shared == nullptr || !first->meet()) return ncclSystemError;
    if (first->rank == 0) unlink(id.name.data());
    ++splits;
    shared->process[static_cast<std::size_t>(first->rank)] = getpid();
    trireme::invariant(*made == nullptr, "the handle of a split stays where it is until the split has ended");
    *made = new ncclComm{first->rank, first->size, shared};
    return ncclSuccess;
  });
}
void ncclHoldEnds(bool holds) { ends_are_held = holds; }
void ncclHoldSplits(bool holds) { splits_are_held = holds; }
void ncclAtInit(std::function<void()> call) { at_init = std::move(call); }
int ncclAborts() { return aborts; }
int ncclQueuedAborts() { return queued_aborts; }
int ncclPendingAtLaunches() { return trireme::test::gpu::nccl::pending_at_launches; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
int ncclSplits() { return splits; }
std::vector<int> ncclMaxCtas() { return max_ctas; }
std::vector<int> ncclCtaPolicies() { return cta_policies; }

namespace {

std::set<const void*>& allocated() {
  static std::set<const void*> all;
  return all;
}

}  // namespace

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = trireme::test::gpu::memory().raw_allocate(bytes);
  trireme::device::gpu_charges().freed(*memory);  // NCCL's pages are not libtorch's
  allocated().insert(*memory);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* memory) {
  if (allocated().erase(memory) == 0) return ncclInvalidArgument;
  trireme::test::gpu::memory().raw_deallocate(memory);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t over, void* memory, std::size_t bytes, ncclWindow_t* window, int flags) {
  if (flags != NCCL_WIN_COLL_SYMMETRIC || !allocated().contains(memory)) return ncclInvalidArgument;
  const Inside inside(over);
  return over->launch([=] {
    ncclResult_t same = ncclSuccess;
    const auto size_of = [&](int rank) { return reinterpret_cast<std::size_t*>(over->slot(rank)); };
    const ncclResult_t met = over->exchange([&](std::byte* mine) { std::memcpy(mine, &bytes, sizeof bytes); },
                                            [&] {
                                              for (int r = 0; r < over->size; ++r)
                                                if (*size_of(r) != bytes) same = ncclInvalidArgument;
                                            });
    if (met != ncclSuccess || same != ncclSuccess) return met == ncclSuccess ? same : met;
    ++trireme::test::gpu::nccl::registered_windows;
    *window = &over->windows.emplace_back(static_cast<const std::byte*>(memory), bytes);
    return ncclSuccess;
  });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t over, ncclWindow_t window) {
  const Inside inside(over);
  over->windows.remove_if([&](const ncclWindow& known) { return &known == window; });
  return ncclSuccess;
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
  *state = of->result;
  return ncclSuccess;
}
/// Any thread may abort. With an open group it is queued until the group ends, and a group that had an error drops it.
ncclResult_t ncclCommAbort(ncclComm_t of) {
  if (trireme::test::gpu::nccl::group_is_open()) {
    ++queued_aborts;
    return ncclSuccess;
  }
  ++aborts;
  of->pending->aborted = true;
  of->shared->left[static_cast<std::size_t>(of->rank)] = true;
  return ncclCommDestroy(of);
}
/// Like NCCL's, ended when all ranks have called it.
ncclResult_t ncclCommFinalize(ncclComm_t of) {
  const Inside inside(of);
  left_windows += static_cast<int>(of->windows.size());
  return of->launch([of] { return of->meet() ? ncclSuccess : of->not_met(); });
}
ncclResult_t ncclCommDestroy(ncclComm_t of) {
  while (ends_are_held) std::this_thread::sleep_for(trireme::test::gpu::nccl::launch_time);
  if (of->job.joinable()) of->job.join();
  {
    const trireme::test::gpu::Running now;
    of->pending->aborted = true;  // collectives that have not begun do not read `of`
  }
  while (of->pending->running > 0) std::this_thread::sleep_for(trireme::test::gpu::nccl::launch_time);
  munmap(of->shared, shared_bytes);
  delete of;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default: return "simulated NCCL failed";
  }
}
const char* ncclGetLastError(ncclComm_t of) { return of != nullptr ? of->error.c_str() : ""; }
