// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/units.hpp"

namespace at {
class Tensor;
}
namespace trireme::mpi {
class FlightLane;
class FlightRecorder;
class Wait;
struct Deadline;
struct Operation;
}  // namespace trireme::mpi

namespace trireme::comm {

/// Partition of `total` items (elements or bytes) over the ranks: equal parts in rank order, the last short or empty.
struct Parts {
  std::int64_t total = 0;
  std::int64_t part = 0;
  [[nodiscard]] std::int64_t begin(int rank) const { return std::min(rank * part, total); }
  [[nodiscard]] std::int64_t length(int rank) const { return std::min((rank + 1) * part, total) - begin(rank); }
};

/// Use of a window by collectives.
enum class WindowUse {
  gathered,  ///< all_gather fills it, on all ranks with the same, and nothing else writes it: they may have it in
             ///< common
  terms,     ///< reduce_scatter reads it
  part,      ///< the data that a rank sends or keeps
};

/// Moves the bytes of one group on one lane: MPI, shared memory, NCCL, or a test's fake. `Collectives` owns one, counts
/// its calls and passes every call a `Wait`, which a transport must use for all waiting. Its collectives are called
/// only with two ranks or more. Tensors are on the compute device; on a GPU a transport works on the calling thread's
/// current stream, and operations may still be in progress when a call returns.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;

  /// Gathers part r of rank r into `whole` [parts.total bytes]. mine: this rank's part, possibly within `whole`.
  virtual void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) = 0;
  /// Sums over the ranks in rank order, starting from rank 0's term; this rank's part is stored in, or added to,
  /// `mine`. Terms are rounded to bf16 when wire is bf16. mine: possibly this rank's part of `whole`.
  virtual void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                              mpi::Wait& wait) = 0;
  /// bytes: in the host's memory.
  virtual void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) = 0;
  virtual void barrier(mpi::Wait& wait) = 0;

  /// Sends sent[r] bytes of `out` to every rank r and receives received[r] of it into `in`; both are in rank order
  /// without gaps and do not overlap, and sent[r] here is received[rank] there. Not in the default: throws BugError.
  virtual void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                          std::span<const std::int64_t> received, mpi::Wait& wait);

  /// Sends `bytes` from `out` to `peer` and receives as many from it into `in`; null: one way only. Messages between
  /// two ranks arrive in the order in which they were sent. The default has none: throws BugError.
  virtual void exchange(const std::byte* out, std::byte* in, std::int64_t bytes, int peer, mpi::Wait& wait);

  /// Sums `data` over the ranks in place: a transport's own way, or false if the other collectives make it up.
  virtual bool all_reduce(float* data, std::int64_t elements, DType wire, mpi::Wait& wait);
  /// `all_gather` of a few bytes in the host's memory.
  virtual void gather_values(const std::byte* mine, std::byte* all, Parts bytes, mpi::Wait& wait);
  /// all_gather and reduce_scatter in a group of one rank.
  virtual void copy_alone(const std::byte* from, std::byte* to, std::int64_t bytes);
  virtual void sum_alone(const float* from, float* to, std::int64_t elements, bool accumulate);
  /// Maps `memory`, which is on the compute device, so that the ranks can read and write it in later calls; keeps a
  /// reference to it. Collective: the same number of bytes on all ranks. Returns false, on all ranks, if the
  /// system refuses the mapping: calls copy then. The default maps nothing and returns true.
  virtual bool add_window(const at::Tensor& memory, WindowUse use, mpi::Wait& wait);
  /// Allocates memory shared by all ranks: [elements] of `type`, zeroed, not charged to any category. A rank that
  /// writes its part between calls of all_gather avoids the copy: an all_gather from that part, which all ranks must
  /// call in the same way, waits until the others have written theirs. It does not wait until they have read the
  /// previous contents: no part may change before that. Collective: the same number on all ranks. Undefined by default,
  /// if the system refuses the memory on any rank, or if it limits the address space (`ulimit -v`).
  virtual at::Tensor common_memory(std::int64_t elements, DType type, mpi::Wait& wait);
  /// Tracks a call that returned while its work is in progress: the transport notifies `lane` when that is complete,
  /// and enforces the deadline until then. Returns false if the call has completed. Lane, deadline and recorder outlive
  /// the transport.
  virtual bool ends_later(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
                          const mpi::FlightRecorder& recorder);
};

}  // namespace trireme::comm
