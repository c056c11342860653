// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/nccl_watch.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/deadline.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm::nccl {
namespace {

/// Far finer than any deadline, and far coarser than a launch.
constexpr std::chrono::milliseconds between_looks{5};

}  // namespace

Watch::~Watch() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Watch::add(mpi::FlightLane& lane, const mpi::Operation& operation, const mpi::Deadline& deadline,
                const mpi::FlightRecorder& recorder, c10::Stream stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  {
    const std::scoped_lock lock(mutex_);
    if (pending_.empty()) head_since_ = mpi::Clock::now();
    pending_.push_back({std::move(event), &lane, operation, &deadline, &recorder});
  }
  if (!thread_.joinable())
    thread_ = std::jthread([this, gpu = stream.device()](const std::stop_token& stop) {
      // A new thread's GPU is the first one: ending an event would make a context there for every rank of the node.
      c10::impl::VirtualGuardImpl(gpu.type()).setDevice(gpu);
      loop(stop);
    });
  changed_.notify_one();
}

void Watch::raise() {
  const std::scoped_lock lock(mutex_);
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Watch::loop(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (!changed_.wait(lock, stop, [&] { return !pending_.empty(); })) return;
    try {
      look(lock);
    } catch (...) {
      failure_ = std::current_exception();
      return;
    }
    changed_.wait_for(lock, stop, between_looks, [] { return false; });
  }
}

void Watch::look(std::unique_lock<std::mutex>& lock) {
  while (!pending_.empty() && pending_.front().event.query()) {
    pending_.front().lane->finish(pending_.front().operation.sequence);
    pending_.pop_front();
    head_since_ = mpi::Clock::now();
  }
  if (pending_.empty()) return;
  const Pending& head = pending_.front();
  if (const auto state = handle_.state(); state && *state != ncclSuccess && *state != ncclInProgress)
    return report(head, *state, lock);
  if (std::chrono::duration<double>(mpi::Clock::now() - head_since_).count() > head.deadline->timeout_seconds)
    report(head, ncclSuccess, lock);
}

void Watch::report(const Pending& late, ncclResult_t state, std::unique_lock<std::mutex>& lock) const {
  const std::string operation = to_text(late.operation);
  const mpi::Deadline& deadline = *late.deadline;
  const mpi::FlightRecorder& recorder = *late.recorder;
  lock.unlock();  // the recorder of this lane may be asked meanwhile
  if (state != ncclSuccess) {
    const std::string text =
        fmt::format("NCCL failed in {}: {}. NCCL_DEBUG=INFO shows more; comm.backend = \"mpi\" does not use NCCL.",
                    operation, ncclGetErrorString(state));
    lock.lock();
    if (deadline.on_hang) throw EnvironmentError(text);
    mpi::abort_job(ExitCode::environment, text);
  }
  try {
    mpi::report_hang(
        deadline, &recorder,
        fmt::format("Hang: {} is not done on the GPU after {} s and waits for {}. A rank of that group, or its node, "
                    "stopped or "
                    "left the common order of operations: look at the last messages of all ranks. If the step is just "
                    "slow, raise comm.timeout_seconds.",
                    operation, deadline.timeout_seconds, handle_.awaited()));
  } catch (...) {
    lock.lock();
    throw;
  }
}

}  // namespace trireme::comm::nccl
