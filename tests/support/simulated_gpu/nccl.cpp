// SPDX-License-Identifier: Apache-2.0
//
// Simulated NCCL: the life of communicators. What they do is in nccl_collectives.cpp.
#include "nccl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include "support/simulated_gpu/nccl_communicator.hpp"

using trireme::test::gpu::nccl::Inside;
using trireme::test::gpu::nccl::most_ranks;
using trireme::test::gpu::nccl::Shared;
using trireme::test::gpu::nccl::shared_bytes;

namespace {

std::atomic<int> times_in_progress = 0;

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
