// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm {

/// Memory that all ranks of a group map: one area per rank, in two halves, and flags for the handshake.
/// POSIX shared memory rather than an MPI window: unmapping is not collective, so that a failing rank does not
/// block, and a full /dev/shm is an error message instead of a SIGBUS.
///
/// Every rank executes the same sequence of rounds; round t uses half t mod 2:
///   write: await_free(); fill mine(); publish()
///   read:  await(r) for every rank read; use of(r); release()
/// A rank may write round t + 1 before it reads round t, so that one half is filled while the other is used.
class SharedSegment {
 public:
  /// Collective. area_bytes: of one rank, both halves. Throws EnvironmentError on all ranks alike when one cannot map
  /// it.
  SharedSegment(const mpi::Communicator& communicator, std::size_t area_bytes);
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;
  ~SharedSegment();

  [[nodiscard]] std::size_t half_bytes() const { return half_bytes_; }

  void await_free(mpi::Wait& wait);
  [[nodiscard]] std::byte* mine() const { return half(rank_, written_); }
  void publish();

  void await(int rank, mpi::Wait& wait);
  [[nodiscard]] const std::byte* of(int rank) const { return half(rank, read_); }
  void release();

 private:
  // On separate cache lines (two: lines are fetched in pairs).
  struct alignas(128) Flags {
    std::atomic<std::uint64_t> published;  // rounds this rank has written
    std::atomic<std::uint64_t> released;   // rounds this rank has read
    std::atomic<std::uint32_t> event;      // counts the changes of the two: the futex on which others sleep
    std::atomic<std::uint32_t> sleepers;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "flags must work between processes");

  // Waits until `done(flags(rank))`, asleep after a short while.
  template <class Done>
  void await_flags(int rank, mpi::Wait& wait, Done&& done);
  // Wakes those who sleep on this rank's flags.
  void notify();

  [[nodiscard]] std::byte* half(int rank, std::uint64_t round) const;
  [[nodiscard]] Flags& flags(int rank) const { return reinterpret_cast<Flags*>(memory_)[rank]; }

  const mpi::Communicator* communicator_;
  int rank_;
  int ranks_;
  std::size_t half_bytes_;
  std::size_t flags_bytes_;
  std::size_t total_bytes_;
  std::byte* memory_ = nullptr;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace trireme::comm
