// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <nccl.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "trireme/comm/device_transports.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm::nccl {

[[nodiscard]] inline bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

/// Throws EnvironmentError with NCCL's message unless a call succeeded or is in progress. what: as an infinitive.
void check(ncclResult_t result, std::string_view what, ncclComm_t handle = nullptr,
           std::source_location where = std::source_location::current());

/// Makes calls() one group. It returns at its first call that failed; the group is ended in any case: in a thread with
/// an open group NCCL would only queue the following abort. Returns the first error, else the result of the group's
/// end.
template <class Calls>
[[nodiscard]] ncclResult_t grouped(Calls&& calls) {
  if (const ncclResult_t started = ncclGroupStart(); failed(started)) return started;
  const ncclResult_t called = calls();
  const ncclResult_t ended = ncclGroupEnd();
  return failed(called) ? called : ended;
}

/// Owns one NCCL communicator, which never blocks the calling thread. The destructor is collective as a Communicator's:
/// during stack unwinding, or when the other ranks have not called it by the deadline, it aborts the communicator
/// instead. Ending and aborting may wait for other ranks inside NCCL (ncclCommDestroy, ncclCommAbort), so both run on a
/// separate thread, which is abandoned at the deadline.
///
/// Only one thread at a time may use the communicator. A nonblocking call leaves its work to an internal NCCL thread;
/// the thread that queries the state joins it and frees its job (ncclGroupJobComplete, NCCL 2.28), without
/// a lock inside NCCL.
class Handle {
 public:
  /// Collective over `communicator`: the ids of every `settings.per_root`th rank are gathered and broadcast over MPI.
  /// The current CUDA device is this rank's. Both constructors: settings.recorder contains the call as an operation,
  /// and is dumped if it hangs.
  Handle(const mpi::Communicator& communicator, const mpi::Deadline& deadline, const NcclSettings& settings);
  /// Splits `first`, a communicator of the same ranks, which saves its start-up; they share nothing afterwards.
  /// Collective over it; no other thread launches over it meanwhile.
  Handle(const Handle& first, const mpi::Communicator& communicator, const mpi::Deadline& deadline,
         const NcclSettings& settings);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  /// Calls work(communicator), which returns the result of its last NCCL call, and returns when that has been launched.
  /// No other thread uses the communicator meanwhile. Throws as `check` and `wait`.
  template <class Work>
  void launch(std::string_view what, mpi::Wait& wait, Work&& work,
              std::source_location where = std::source_location::current()) const {
    const std::scoped_lock lock(inside_);
    settle(work(handle_), what, wait, where);
    launched(what, wait);
  }
  /// Registers `memory` as a symmetric window. NCCL has kernels for windows where all ranks reach each other's memory
  /// (one NVLink domain); elsewhere 2.28 registers them too, which costs a mapping and a barrier, and has no use for
  /// them. Collective; kept until the communicator ends.
  void add_window(const at::Tensor& memory, mpi::Wait& wait);
  /// State of the communicator: ncclSuccess, ncclInProgress or an error of this rank or another. Nothing if another
  /// thread is launching; that thread gets the state first.
  [[nodiscard]] std::optional<ncclResult_t> state() const;
  /// "rank 1 on n1": whom this rank may wait for.
  [[nodiscard]] const std::string& awaited() const { return others_; }

 private:
  /// Returns when the communicator is ready; destroys it and throws where it never will be.
  void made(mpi::Wait& wait);
  void launched(std::string_view what, mpi::Wait& wait) const;
  /// `check`; a lost connection to another rank is reported as a hang.
  void settle(ncclResult_t result, std::string_view what, mpi::Wait& wait,
              std::source_location where = std::source_location::current()) const;
  [[nodiscard]] ncclResult_t ask() const;
  void abort() noexcept;

  mutable std::mutex inside_;  ///< held by the thread that is inside the communicator
  ncclComm_t handle_ = nullptr;
  /// NCCL writes `handle` when the registration has ended: it stays where it is.
  struct Window {
    at::Tensor memory;
    ncclWindow_t handle = nullptr;
  };
  std::shared_ptr<std::list<Window>> windows_ = std::make_shared<std::list<Window>>();
  std::string others_;  ///< the ranks that this one may wait for
  int exceptions_at_construction_ = 0;
  c10::Device gpu_;
  mpi::Deadline deadline_;
};

}  // namespace trireme::comm::nccl
