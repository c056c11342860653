// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/nccl.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/flight.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::comm::nccl {
namespace {

/// "one of rank 1 on n1, rank 2 on n1, ...": the first few other ranks of a group.
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

/// The ids that ranks 0, per_root, 2 per_root, ... make, on every rank: gathered by rank 0 if there are several, and
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

constexpr double longest_abort = 10;  // seconds: an exception may wait after it

c10::Device current_gpu() { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice(); }

/// A call of NCCL that may never return, on a separate thread, at work on `gpu`.
class Abandonable {
 public:
  Abandonable(c10::Device gpu, std::function<void()> call) {
    std::packaged_task<void()> task([gpu, call = std::move(call)] {
      c10::impl::VirtualGuardImpl(gpu.type()).setDevice(gpu);
      call();
    });
    returned_ = task.get_future();
    try {
      std::thread(std::move(task)).detach();
    } catch (const std::system_error&) {  // no thread to be had; the moved-from task did not run
      returned_ = {};
    }
  }
  /// Whether it returned within `seconds`; otherwise it continues.
  [[nodiscard]] bool within(double seconds) const {
    return !returned_.valid() ||
           returned_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }

 private:
  std::future<void> returned_;
};

/// The operation of making a communicator, in the caller's recorder if there is one.
class Making {
 public:
  Making(const char* what, const mpi::Deadline& deadline, mpi::FlightRecorder* recorder)
      : lane_((recorder != nullptr ? *recorder : own_).add_lane("start of nccl")),
        wait_(lane_.begin(what, {0}), deadline, recorder != nullptr ? *recorder : own_) {}
  [[nodiscard]] mpi::Wait& wait() { return wait_; }
  void finish() { lane_.finish(); }

 private:
  mpi::FlightRecorder own_;
  mpi::FlightLane& lane_;
  mpi::Wait wait_;
};

}  // namespace

void check(ncclResult_t result, std::string_view what, ncclComm_t handle, std::source_location where) {
  if (!failed(result)) return;
  const char* last = ncclGetLastError(handle);
  throw EnvironmentError(fmt::format(
      "NCCL could not {}: {}{}{} ({}:{}). NCCL_DEBUG=INFO shows more; comm.backend = \"mpi\" does not use NCCL.", what,
      ncclGetErrorString(result), last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : "",
      where.file_name(), where.line()));
}

Handle::Handle(const mpi::Communicator& communicator, const mpi::Deadline& deadline, const NcclSettings& settings)
    : others_(others(communicator)),
      exceptions_at_construction_(std::uncaught_exceptions()),
      gpu_(current_gpu()),
      deadline_(deadline) {
  std::vector<ncclUniqueId> ids = ids_of_roots(communicator, settings.per_root);
  ncclConfig_t config = configured(settings);
  Making making("make a communicator", deadline, settings.recorder);
  settle(ncclCommInitRankScalable(&handle_, communicator.size(), communicator.rank(), static_cast<int>(ids.size()),
                                  ids.data(), &config),
         "make a communicator", making.wait());
  made(making.wait());
  making.finish();
}

Handle::Handle(const Handle& first, const mpi::Communicator& communicator, const mpi::Deadline& deadline,
               const NcclSettings& settings)
    : others_(others(communicator)),
      exceptions_at_construction_(std::uncaught_exceptions()),
      gpu_(current_gpu()),
      deadline_(deadline) {
  ncclConfig_t config = configured(settings);
  config.splitShare = 0;  // or one lane's abort would end the others before they report their waits
  Making making("split a communicator", deadline, settings.recorder);
  // The new handle is there when the first communicator is not in progress any more (NVIDIA/nccl issue 1472). Where the
  // split hangs, NCCL may write it after this object has ended: it is left behind then.
  auto made_handle = std::make_unique<ncclComm_t>(nullptr);
  try {
    first.launch("split a communicator", making.wait(), [&](ncclComm_t comm) {
      return ncclCommSplit(comm, 0, communicator.rank(), made_handle.get(), &config);
    });
  } catch (...) {
    (void)made_handle.release();
    throw;
  }
  handle_ = *made_handle;
  made(making.wait());
  making.finish();
}

void Handle::made(mpi::Wait& wait) {
  try {
    launched("make a communicator", wait);
  } catch (...) {
    abort();
    throw;
  }
}

void Handle::add_window([[maybe_unused]] const at::Tensor& memory, [[maybe_unused]] mpi::Wait& wait) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
  Window& window = windows_->emplace_back(memory);
  launch("register memory", wait, [&](ncclComm_t comm) {
    return ncclCommWindowRegister(comm, memory.mutable_data_ptr(), memory.nbytes(), &window.handle,
                                  NCCL_WIN_COLL_SYMMETRIC);
  });
#endif
}

Handle::~Handle() {
  if (handle_ == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_at_construction_ || ask() != ncclSuccess) {
    abort();
    return;
  }
  // Finalizing launches; the state changes when the other ranks have called it. Destroying may wait for them, too.
  const auto give_up = std::make_shared<std::atomic<bool>>(false);
  const Abandonable end(gpu_, [handle = handle_, windows = windows_, give_up] {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    for (const Window& window : *windows)
      if (window.handle != nullptr) (void)ncclCommWindowDeregister(handle, window.handle);
#endif
    ncclResult_t now = ncclCommFinalize(handle);
    for (mpi::Backoff backoff; !failed(now) && !*give_up;) {
      const ncclResult_t asked = ncclCommGetAsyncError(handle, &now);
      if (failed(asked)) now = asked;
      if (now != ncclInProgress) break;
      if (!backoff.brief()) backoff.sleep();
    }
    (void)(now == ncclSuccess ? ncclCommDestroy(handle) : ncclCommAbort(handle));
    windows->clear();
  });
  constexpr double between_looks = 0.2;
  const auto began = mpi::Clock::now();
  while (!end.within(std::min(between_looks, deadline_.timeout_seconds)))
    if (deadline_.passed(began)) break;
  if (end.within(0)) return;
  log::warning(fmt::format("NCCL: {} has not ended its communicator after {} s; it is aborted.", others_,
                           deadline_.timeout_seconds));
  *give_up = true;
  (void)end.within(std::min(longest_abort, deadline_.timeout_seconds));
}

void Handle::abort() noexcept {
  try {
    // By another thread: a group that is open on this one would only queue it.
    const Abandonable call(gpu_, [handle = std::exchange(handle_, nullptr), windows = windows_] {
      (void)ncclCommAbort(handle);
      windows->clear();
    });
    if (!call.within(std::min(longest_abort, deadline_.timeout_seconds)))
      log::warning(fmt::format("NCCL has not aborted a communicator of this rank and {}; it is left behind.", others_));
  } catch (const std::exception&) {  // no memory for a thread: the process ends without it
  }
}

void Handle::launched(std::string_view what, mpi::Wait& wait) const {
  ncclResult_t now = ncclInProgress;
  wait.until([&] { return (now = ask()) != ncclInProgress; }, [&] { return others_; });
  settle(now, what, wait);
}

void Handle::settle(ncclResult_t result, std::string_view what, mpi::Wait& wait, std::source_location where) const {
  if (result == ncclRemoteError) wait.lose(others_);
  check(result, what, handle_, where);
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

namespace trireme::comm {

int nccl_version() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess ? version : 0;
}

}  // namespace trireme::comm
