// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Event.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "comm/cuda/nccl.hpp"
#include "trireme/mpi/flight.hpp"

namespace trireme::comm::nccl {

/// Watches the collectives of one communicator that were launched and are not done: marks them in the flight recorder
/// when they are, and reports a hang, a lost rank or an error of NCCL or the GPU where they never will be.
class Watch {
 public:
  /// handle: outlives this.
  explicit Watch(const Handle& handle) : handle_(handle) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch();

  /// `operation` is done when the work on the calling thread's current stream is. lane, deadline, recorder: outlive it.
  void add(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
           const mpi::FlightRecorder& recorder, c10::Stream stream);
  /// Rethrows the exception of the watching thread, which ends with it (tests: `Deadline::on_hang`).
  void raise();

 private:
  struct Pending {
    c10::Event event;
    mpi::FlightLane* lane;
    mpi::Operation operation;
    const mpi::Deadline* deadline;
    const mpi::FlightRecorder* recorder;
  };
  void loop(const std::stop_token& stop);
  /// Removes completed operations; the time of the next one begins when it becomes the first. Reports without the lock:
  /// the query of progress may read files, and other threads add operations meanwhile.
  void look(std::unique_lock<std::mutex>& lock);
  void report_overdue(const Pending& late) const;
  void report_error(const Pending& late, ncclResult_t state) const;

  const Handle& handle_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Pending> pending_;
  mpi::Clock::time_point head_since_{};
  mpi::Clock::time_point looked_for_ranks_{};  ///< of the watching thread only
  std::exception_ptr failure_;
  std::jthread thread_;  ///< begins with the first operation; last: it ends before its members are destroyed
};

}  // namespace trireme::comm::nccl
