// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/nccl.hpp"

#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::comm::nccl {
namespace {

/// "one of rank 1 on n1, rank 2 on n1, ...": a few of the other ranks of a group.
std::string others(const mpi::Communicator& communicator) {
  constexpr int most = 4;
  std::string names;
  int named = 0;
  for (int rank = 0; rank < communicator.size() && named < most; ++rank) {
    if (rank == communicator.rank()) continue;
    names += (named++ == 0 ? "" : ", ") + communicator.name_of(rank);
  }
  const int more = communicator.size() - 1 - named;
  if (communicator.size() == 2) return names;
  return more > 0 ? fmt::format("one of {} and {} more ranks", names, more) : "one of " + names;
}

/// The ids that ranks 0, per_root, 2 per_root, ... make, on every rank: gathered by rank 0 where there are several, and
/// broadcast by it. Waits to the communicator's deadline. Collective over it.
std::vector<ncclUniqueId> ids_of_roots(const mpi::Communicator& communicator, int per_root) {
  std::string own;
  if (communicator.rank() % per_root == 0) {
    ncclUniqueId id;
    check(ncclGetUniqueId(&id), "make an id for a communicator");
    own.assign(reinterpret_cast<const char*>(&id), sizeof id);
  }
  if (communicator.size() > per_root) own = join(mpi::gather_texts(communicator, own), "");
  const std::string all = mpi::broadcast_text(communicator, std::move(own));
  std::vector<ncclUniqueId> ids(all.size() / sizeof(ncclUniqueId));
  std::memcpy(ids.data(), all.data(), all.size());
  return ids;
}

ncclConfig_t configured(const NcclSettings& settings) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (settings.max_ctas > 0) config.maxCTAs = settings.max_ctas;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
  if (settings.copy_engines) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#else
  if (settings.copy_engines)
    throw EnvironmentError(fmt::format(
        "comm.nccl_copy_engines = true requires NCCL 2.28, but this trireme was built with {}.{}.{}. Leave it out.",
        NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
#endif
  return config;
}

}  // namespace

void check(ncclResult_t result, std::string_view what, ncclComm_t handle, std::source_location where) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(handle);
  throw EnvironmentError(fmt::format(
      "NCCL could not {}: {}{}{} ({}:{}). NCCL_DEBUG=INFO shows more; comm.backend = \"mpi\" does not use NCCL.", what,
      ncclGetErrorString(result), last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : "",
      where.file_name(), where.line()));
}

Handle::Handle(const mpi::Communicator& communicator, const mpi::Deadline& deadline, const NcclSettings& settings)
    : others_(others(communicator)), exceptions_at_construction_(std::uncaught_exceptions()), deadline_(deadline) {
  std::vector<ncclUniqueId> ids = ids_of_roots(communicator, settings.per_root);
  ncclConfig_t config = configured(settings);
  check(ncclCommInitRankScalable(&handle_, communicator.size(), communicator.rank(), static_cast<int>(ids.size()),
                                 ids.data(), &config),
        "make a communicator");
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("nccl").begin("make a communicator", {0}), deadline, recorder);
  made(wait);
}

Handle::Handle(const Handle& first, const mpi::Communicator& communicator, const mpi::Deadline& deadline,
               const NcclSettings& settings)
    : others_(others(communicator)), exceptions_at_construction_(std::uncaught_exceptions()), deadline_(deadline) {
  ncclConfig_t config = configured(settings);
  config.splitShare = 0;  // or one lane's abort would be the end of the others, who have not said what they waited for
  mpi::FlightRecorder recorder;
  mpi::Wait wait(recorder.add_lane("nccl").begin("split a communicator", {0}), deadline, recorder);
  // The new handle is there when the first communicator is not in progress any more (NVIDIA/nccl issue 1472).
  first.launch("split a communicator", wait,
               [&](ncclComm_t comm) { return ncclCommSplit(comm, 0, communicator.rank(), &handle_, &config); });
  made(wait);
}

void Handle::made(mpi::Wait& wait) {
  try {
    launched("make a communicator", wait);
  } catch (...) {
    (void)ncclCommAbort(handle_);
    throw;
  }
}

void Handle::add_window([[maybe_unused]] const at::Tensor& memory, [[maybe_unused]] mpi::Wait& wait) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  Window& window = windows_.emplace_back(memory);
  launch("register memory", wait, [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory.mutable_data_ptr(), memory.nbytes(), &window.handle,
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
#endif
}

Handle::~Handle() {
  if (handle_ == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_at_construction_ || ask() != ncclSuccess) {
    (void)ncclCommAbort(handle_);
    return;
  }
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  for (const Window& window : windows_)
    if (window.handle != nullptr) (void)ncclCommWindowDeregister(handle_, window.handle);
#endif
  finalize();
}

void Handle::finalize() noexcept {
  const auto began = mpi::Clock::now();
  mpi::Backoff backoff;
  ncclResult_t now = ncclCommFinalize(handle_);
  while (now == ncclInProgress || now == ncclSuccess) {
    if ((now = ask()) != ncclInProgress) break;
    if (backoff.brief()) continue;
    if (deadline_.passed(began)) {
      log::warning(fmt::format("NCCL: {} has not ended its communicator after {} s; it is aborted.", others_,
                               deadline_.timeout_seconds));
      break;
    }
    backoff.sleep();
  }
  (void)(now == ncclSuccess ? ncclCommDestroy(handle_) : ncclCommAbort(handle_));
}

void Handle::launched(std::string_view what, mpi::Wait& wait) const {
  ncclResult_t now = ncclInProgress;
  wait.until([&] { return (now = ask()) != ncclInProgress; }, [&] { return others_; });
  check(now, what, handle_);
}

std::optional<ncclResult_t> Handle::state() const {
  const std::unique_lock lock(inside_, std::try_to_lock);
  if (!lock) return std::nullopt;
  return ask();
}

ncclResult_t Handle::ask() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
  return asked == ncclSuccess ? state : asked;
}

}  // namespace trireme::comm::nccl
