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

/// How `total` items (elements or bytes) lie on the ranks: equal parts in rank order, the last ones short or empty.
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
  part,      ///< it holds what a rank sends or keeps
};

/// Moves the bytes of one group on one lane: MPI, shared memory, NCCL, or a test's fake. `Collectives` owns one,
/// counts its calls and gives every call a `Wait`, which a transport must use for all waiting. Its collectives are
/// called only when there are two ranks or more. Tensors lie where the step computes; on a GPU a transport works on the
/// calling thread's current stream, and what it has launched may still be under way when a call returns.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;

  /// Gathers part r of rank r into `whole` [parts.total bytes]. mine: this rank's part, possibly within `whole`.
  virtual void all_gather(const std::byte* mine, std::byte* whole, Parts bytes, mpi::Wait& wait) = 0;
  /// Sums over the ranks in rank order, starting from rank 0's term; this rank's part goes to, or is added to, `mine`.
  /// Terms are rounded to bf16 when wire is bf16. mine: possibly this rank's part of `whole`.
  virtual void reduce_scatter(const float* whole, float* mine, Parts elements, DType wire, bool accumulate,
                              mpi::Wait& wait) = 0;
  /// bytes: in the host's memory.
  virtual void broadcast(std::span<std::byte> bytes, int root, mpi::Wait& wait) = 0;
  virtual void barrier(mpi::Wait& wait) = 0;

  /// Sends sent[r] bytes of `out` to every rank r and receives received[r] of it into `in`; both lie in rank order
  /// without gaps and do not overlap, and sent[r] here is received[rank] there. The default has none: throws BugError.
  virtual void all_to_all(const std::byte* out, std::span<const std::int64_t> sent, std::byte* in,
                          std::span<const std::int64_t> received, mpi::Wait& wait);

  /// Sends `bytes` from `out` to `peer` and receives as many from it into `in`; null: one way only. Messages between
  /// two ranks arrive in the order in which they were sent. The default has none: throws BugError.
  virtual void exchange(const std::byte* out, std::byte* in, std::int64_t bytes, int peer, mpi::Wait& wait);

  /// Sums `data` over the ranks in place: a transport's own way, or false where the other collectives make it up.
  virtual bool all_reduce(float* data, std::int64_t elements, DType wire, mpi::Wait& wait);
  /// `all_gather` of a few bytes in the host's memory.
  virtual void gather_values(const std::byte* mine, std::byte* all, Parts bytes, mpi::Wait& wait);
  /// all_gather and reduce_scatter in a group of one rank.
  virtual void copy_alone(const std::byte* from, std::byte* to, std::int64_t bytes);
  virtual void sum_alone(const float* from, float* to, std::int64_t elements, bool accumulate);
  /// Lets the ranks read and write each other's `memory`, which lies where the step computes, in later calls, and
  /// shares it for as long. Collective: the same number of bytes on all ranks. False, on all ranks alike, where the
  /// system refuses to share it: calls copy then. The default shares nothing and returns true.
  virtual bool add_window(const at::Tensor& memory, WindowUse use, mpi::Wait& wait);
  /// Memory that the ranks have in common: [elements] of `type`, zeroed, not charged to any category. Whoever writes
  /// its part between calls of all_gather copies nothing in them: an all_gather out of that part, which all ranks call
  /// alike, waits until the others have written theirs. It does not wait until they have read what was there before, so
  /// no part may change before that. Collective: the same number on all ranks. The default, and a system that refuses
  /// it on any rank or counts addresses (`ulimit -v`): an undefined tensor.
  virtual at::Tensor common_memory(std::int64_t elements, DType type, mpi::Wait& wait);
  /// Takes over the end of a call that returned while its work is under way: the transport notifies `lane` when that is
  /// done, and keeps the deadline meanwhile. False where the call has done everything. Lane, deadline and recorder
  /// live longer than the transport.
  virtual bool ends_later(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
                          const mpi::FlightRecorder& recorder);
};

}  // namespace trireme::comm
