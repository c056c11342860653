// SPDX-License-Identifier: Apache-2.0
//
// Preloaded into a program (LD_PRELOAD), it stops one rank in one call, as a node that froze or a file system that does
// not answer would.
//
//   STOPPED_CALL="MPI_Bcast RANK NTH"     the process is stopped (SIGSTOP) in its NTH call of this function (from 1)
//   STOPPED_CALL="MPI_Finalize_return RANK 1"  when the other ranks no longer wait for it
//   STOPPED_CALL="stat RANK NTH PART"     the call never returns; its path contains PART
//
// MPI functions: those that communicate before a run begins and when it ends.
#include <dlfcn.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>

namespace {

struct Place {
  std::string call, rank, part;
  int nth = 0;
};

Place& place() {
  static Place* const wanted = [] {
    auto* const read = new Place;
    const char* const text = std::getenv("STOPPED_CALL");
    std::istringstream words(text == nullptr ? "" : text);
    words >> read->call >> read->rank >> read->nth >> read->part;
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (read->rank != (rank == nullptr ? "0" : rank)) read->call.clear();
    return read;
  }();
  return *wanted;
}

bool is_here(const char* call, const std::string& path = {}) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  Place& wanted = place();
  return wanted.call == call && path.find(wanted.part) != std::string::npos && --wanted.nth == 0;
}

void stop_here(const char* call) {
  if (is_here(call)) ::kill(::getpid(), SIGSTOP);
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  stop_here("MPI_Init_thread");
  return PMPI_Init_thread(argc, argv, required, provided);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm over) {
  stop_here("MPI_Bcast");
  return PMPI_Bcast(data, n, type, root, over);
}
int MPI_Allreduce(const void* from, void* to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm over) {
  stop_here("MPI_Allreduce");
  return PMPI_Allreduce(from, to, n, type, op, over);
}
int MPI_Allgather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype other, MPI_Comm over) {
  stop_here("MPI_Allgather");
  return PMPI_Allgather(from, n, type, to, m, other, over);
}
int MPI_Comm_dup(MPI_Comm over, MPI_Comm* copy) {
  stop_here("MPI_Comm_dup");
  return PMPI_Comm_dup(over, copy);
}
int MPI_Comm_split(MPI_Comm over, int color, int key, MPI_Comm* part) {
  stop_here("MPI_Comm_split");
  return PMPI_Comm_split(over, color, key, part);
}
int MPI_Comm_split_type(MPI_Comm over, int type, int key, MPI_Info info, MPI_Comm* part) {
  stop_here("MPI_Comm_split_type");
  return PMPI_Comm_split_type(over, type, key, info, part);
}
int MPI_Finalize() {
  stop_here("MPI_Finalize");
  const int result = PMPI_Finalize();
  stop_here("MPI_Finalize_return");
  return result;
}

int stat(const char* path, struct stat* status) {
  static auto* const next = reinterpret_cast<int (*)(const char*, struct stat*)>(::dlsym(RTLD_NEXT, "stat"));
  if (is_here("stat", path))
    for (;;) ::pause();
  return next(path, status);
}

}  // extern "C"
