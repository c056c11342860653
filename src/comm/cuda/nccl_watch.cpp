// SPDX-License-Identifier: Apache-2.0
#include "comm/cuda/nccl_watch.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/mpi/abort.hpp"
#include "trireme/mpi/deadline.hpp"
#include "trireme/mpi/wait.hpp"

namespace trireme::comm::nccl {
namespace {

/// Far finer than any deadline, and far coarser than a launch.
constexpr std::chrono::milliseconds between_looks{5};
/// Interval of checks for ended processes of the node.
constexpr std::chrono::milliseconds between_looks_for_ranks{250};

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
      if (!lock.owns_lock()) lock.lock();
      failure_ = std::current_exception();
      return;
    }
    changed_.wait_for(lock, stop, between_looks, [] { return false; });
  }
}

namespace {

/// Ends the job, or throws where a deadline is a test's.
[[noreturn]] void fail(const mpi::Deadline& deadline, const std::string& text) {
  if (!deadline.on_hang) mpi::abort_job(ExitCode::environment, text);
  deadline.on_hang(text);
  throw EnvironmentError(text);
}

}  // namespace

void Watch::look(std::unique_lock<std::mutex>& lock) {
  const auto done = [&](const Pending& head) {
    try {
      return head.event.query();
    } catch (const std::exception& error) {  // every later call of CUDA fails as well
      const std::string text =
          fmt::format("The GPU failed before the end of {}: {}", to_text(head.operation), error.what());
      lock.unlock();
      fail(*head.deadline, text);
    }
  };
  while (!pending_.empty() && done(pending_.front())) {
    pending_.front().lane->finish(pending_.front().operation.sequence);
    pending_.pop_front();
    head_since_ = mpi::Clock::now();
  }
  if (pending_.empty()) return;
  const Pending& head = pending_.front();  // stays there: others only add
  const mpi::Clock::time_point since = head_since_;
  lock.unlock();
  if (const auto state = handle_.state(); state && failed(*state)) report_error(head, *state);
  const mpi::Clock::time_point now = mpi::Clock::now();
  if (now - std::max(since, looked_for_ranks_) > between_looks_for_ranks) {
    looked_for_ranks_ = now;
    // Within a node NCCL does not report that a rank has ended.
    if (!mpi::ended_ranks().empty()) report_error(head, ncclRemoteError);
  }
  if (head.deadline->passed(since)) report_overdue(head);
  lock.lock();
}

void Watch::report_error(const Pending& late, ncclResult_t state) const {
  if (state == ncclRemoteError) {
    mpi::Wait wait(late.operation, *late.deadline, *late.recorder);
    wait.lose(handle_.awaited());
  }
  fail(*late.deadline, fmt::format("NCCL failed in {}: {}. NCCL_DEBUG=INFO shows more; comm.backend = \"mpi\" does not "
                                   "use NCCL.",
                                   to_text(late.operation), ncclGetErrorString(state)));
}

void Watch::report_overdue(const Pending& late) const {
  mpi::report_hang(
      *late.deadline, late.recorder,
      fmt::format("Hang: {} is not done on the GPU after {} s and waits for {}. A rank of that group, or its node, "
                  "stopped or left the common order of operations: look at the last messages of all ranks. If the step "
                  "is just slow, raise comm.timeout_seconds.",
                  to_text(late.operation), late.deadline->timeout_seconds, handle_.awaited()));
}

}  // namespace trireme::comm::nccl
