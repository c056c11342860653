// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <nccl.h>

#include <deque>
#include <mutex>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "trireme/comm/device_transports.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm::nccl {

/// Throws EnvironmentError with NCCL's own text unless a call succeeded or continues by itself. what: as an infinitive.
void check(ncclResult_t result, std::string_view what, ncclComm_t handle = nullptr,
           std::source_location where = std::source_location::current());

/// Owns one NCCL communicator, which never blocks the calling thread. The destructor is collective as a Communicator's:
/// while an exception unwinds the stack, or when the other ranks do not come to it by the deadline, it aborts the
/// communicator instead.
///
/// One thread at a time is inside the communicator: a call that does not block leaves its work to a thread of NCCL's,
/// and whoever asks for the state joins that thread and frees what it worked on (ncclGroupJobComplete, NCCL 2.28),
/// without a lock of NCCL's own.
class Handle {
 public:
  /// Collective over `communicator`: the ids of every `settings.per_root`th rank come by one gather and one broadcast
  /// of MPI. The current CUDA device is this rank's.
  Handle(const mpi::Communicator& communicator, const mpi::Deadline& deadline, const NcclSettings& settings);
  /// Splits `first`, a communicator of the same ranks, which saves its start-up; they share nothing afterwards.
  /// Collective over it; nobody else launches over it meanwhile.
  Handle(const Handle& first, const mpi::Communicator& communicator, const mpi::Deadline& deadline,
         const NcclSettings& settings);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle();

  /// Calls work(communicator), which returns what NCCL's last call in it did, and returns when that has been launched.
  /// No other thread is inside the communicator meanwhile. Throws as `check`, and where `wait` does.
  template <class Work>
  void launch(std::string_view what, mpi::Wait& wait, Work&& work,
              std::source_location where = std::source_location::current()) const {
    const std::scoped_lock lock(inside_);
    check(work(handle_), what, handle_, where);
    launched(what, wait);
  }
  /// Registers `memory` as a symmetric window, which NCCL uses where all ranks reach each other's memory (one NVLink
  /// domain), and ignores elsewhere. Collective; kept until the communicator ends.
  void add_window(const at::Tensor& memory, mpi::Wait& wait);
  /// What became of the communicator: ncclSuccess, ncclInProgress or an error of this rank or another. Nothing where
  /// another thread launches, which will know before this one could.
  [[nodiscard]] std::optional<ncclResult_t> state() const;
  /// "rank 1 on n1": whom this rank may wait for.
  [[nodiscard]] const std::string& awaited() const { return others_; }

 private:
  /// Returns when the communicator is ready; destroys it and throws where it never will be.
  void made(mpi::Wait& wait);
  void launched(std::string_view what, mpi::Wait& wait) const;
  [[nodiscard]] ncclResult_t ask() const;
  void finalize() noexcept;

  mutable std::mutex inside_;  ///< held by the thread that is inside the communicator
  ncclComm_t handle_ = nullptr;
  /// NCCL writes `handle` when the registration has ended: it stays where it is.
  struct Window {
    at::Tensor memory;
    ncclWindow_t handle = nullptr;
  };
  std::deque<Window> windows_;
  std::string others_;  ///< the ranks that this one may wait for
  int exceptions_at_construction_ = 0;
  mpi::Deadline deadline_;
};

}  // namespace trireme::comm::nccl
