// SPDX-License-Identifier: Apache-2.0
//
// The MPI functions that Trireme calls, by MPI's profiling interface: counted by name and by the size of their
// communicator (world, group, self). Bytes of a collective: the larger of the buffers that this rank hands over.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "counts.hpp"

namespace {

int size_of(MPI_Comm over) {
  int size = 0;
  PMPI_Comm_size(over, &size);
  return size;
}

std::int64_t bytes_of(std::int64_t count, MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return 0;
  int size = 0;
  PMPI_Type_size(type, &size);
  return count * size;
}

std::int64_t sum_of(const int counts[], MPI_Comm over) {
  std::int64_t sum = 0;
  if (counts != nullptr)
    for (int r = 0; r < size_of(over); ++r) sum += counts[r];
  return sum;
}

void count(const char* name, MPI_Comm over, std::int64_t bytes) {
  const int size = size_of(over);
  const char* const kind = size == size_of(MPI_COMM_WORLD) ? " world" : size == 1 ? " self" : " group";
  counted::add(std::string(name) + kind, bytes);
}

int rank_in(MPI_Comm over) {
  int rank = 0;
  PMPI_Comm_rank(over, &rank);
  return rank;
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  counted::begin_heap();
  return PMPI_Init_thread(argc, argv, required, provided);
}
int MPI_Finalize() {
  counted::write(rank_in(MPI_COMM_WORLD));
  return PMPI_Finalize();
}

int MPI_Send(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm over) {
  count("send", over, bytes_of(n, type));
  return PMPI_Send(data, n, type, to, tag, over);
}
int MPI_Isend(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm over, MPI_Request* request) {
  count("send", over, bytes_of(n, type));
  return PMPI_Isend(data, n, type, to, tag, over, request);
}
int MPI_Recv(void* data, int n, MPI_Datatype type, int from, int tag, MPI_Comm over, MPI_Status* status) {
  count("receive", over, bytes_of(n, type));
  return PMPI_Recv(data, n, type, from, tag, over, status);
}
int MPI_Irecv(void* data, int n, MPI_Datatype type, int from, int tag, MPI_Comm over, MPI_Request* request) {
  count("receive", over, bytes_of(n, type));
  return PMPI_Irecv(data, n, type, from, tag, over, request);
}
int MPI_Allreduce(const void* from, void* to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm over) {
  count("allreduce", over, bytes_of(n, type));
  return PMPI_Allreduce(from, to, n, type, op, over);
}
int MPI_Iallreduce(const void* from, void* to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm over,
                   MPI_Request* request) {
  count("allreduce", over, bytes_of(n, type));
  return PMPI_Iallreduce(from, to, n, type, op, over, request);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm over) {
  count("broadcast", over, bytes_of(n, type));
  return PMPI_Bcast(data, n, type, root, over);
}
int MPI_Ibcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm over, MPI_Request* request) {
  count("broadcast", over, bytes_of(n, type));
  return PMPI_Ibcast(data, n, type, root, over, request);
}
int MPI_Allgather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, MPI_Comm over) {
  count("allgather", over, bytes_of(std::int64_t{m} * size_of(over), to_type));
  return PMPI_Allgather(from, n, type, to, m, to_type, over);
}
int MPI_Iallgather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, MPI_Comm over,
                   MPI_Request* request) {
  count("allgather", over, bytes_of(std::int64_t{m} * size_of(over), to_type));
  return PMPI_Iallgather(from, n, type, to, m, to_type, over, request);
}
int MPI_Allgatherv(const void* from, int n, MPI_Datatype type, void* to, const int counts[], const int at[],
                   MPI_Datatype to_type, MPI_Comm over) {
  count("allgather", over, bytes_of(sum_of(counts, over), to_type));
  return PMPI_Allgatherv(from, n, type, to, counts, at, to_type, over);
}
int MPI_Gather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, int root,
               MPI_Comm over) {
  count("gather", over, rank_in(over) == root ? bytes_of(std::int64_t{m} * size_of(over), to_type) : bytes_of(n, type));
  return PMPI_Gather(from, n, type, to, m, to_type, root, over);
}
int MPI_Igather(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, int root,
                MPI_Comm over, MPI_Request* request) {
  count("gather", over, rank_in(over) == root ? bytes_of(std::int64_t{m} * size_of(over), to_type) : bytes_of(n, type));
  return PMPI_Igather(from, n, type, to, m, to_type, root, over, request);
}
int MPI_Igatherv(const void* from, int n, MPI_Datatype type, void* to, const int counts[], const int at[],
                 MPI_Datatype to_type, int root, MPI_Comm over, MPI_Request* request) {
  count("gather", over, rank_in(over) == root ? bytes_of(sum_of(counts, over), to_type) : bytes_of(n, type));
  return PMPI_Igatherv(from, n, type, to, counts, at, to_type, root, over, request);
}
int MPI_Iscatter(const void* from, int n, MPI_Datatype type, void* to, int m, MPI_Datatype to_type, int root,
                 MPI_Comm over, MPI_Request* request) {
  count("scatter", over,
        rank_in(over) == root ? bytes_of(std::int64_t{n} * size_of(over), type) : bytes_of(m, to_type));
  return PMPI_Iscatter(from, n, type, to, m, to_type, root, over, request);
}
int MPI_Iscatterv(const void* from, const int counts[], const int at[], MPI_Datatype type, void* to, int m,
                  MPI_Datatype to_type, int root, MPI_Comm over, MPI_Request* request) {
  count("scatter", over, rank_in(over) == root ? bytes_of(sum_of(counts, over), type) : bytes_of(m, to_type));
  return PMPI_Iscatterv(from, counts, at, type, to, m, to_type, root, over, request);
}
int MPI_Barrier(MPI_Comm over) {
  count("barrier", over, 0);
  return PMPI_Barrier(over);
}
int MPI_Ibarrier(MPI_Comm over, MPI_Request* request) {
  count("barrier", over, 0);
  return PMPI_Ibarrier(over, request);
}
int MPI_Comm_split(MPI_Comm over, int color, int key, MPI_Comm* made) {
  count("split", over, 0);
  return PMPI_Comm_split(over, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm over, int type, int key, MPI_Info info, MPI_Comm* made) {
  count("split", over, 0);
  return PMPI_Comm_split_type(over, type, key, info, made);
}
int MPI_Comm_dup(MPI_Comm over, MPI_Comm* made) {
  count("duplicate", over, 0);
  return PMPI_Comm_dup(over, made);
}

}  // extern "C"
