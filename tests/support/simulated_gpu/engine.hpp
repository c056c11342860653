// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// A GPU simulated on the CPU, for tests if there is none: tensors of device type CUDA, whose memory only the
/// device's own work has to touch (`close_memory`). Libtorch's operators run there by its CPU kernels (backend.cpp),
/// ours by the emulator in tests/kernels/on_host.
///
/// Work runs when it is launched. With TRIREME_SIMULATED_GPU=concurrent a thread of the device runs the streams
/// concurrently with the host: collectives of the simulated NCCL are pending then, and end some time after the last
/// rank called them. With TRIREME_SIMULATED_GPU=late it runs as late as possible, so that results of missing waits are
/// absent: only a wait for a stream or an event makes that run, with its dependencies. With "compute late" this holds
/// for the default stream, and the others run at once, so that work without a wait for it is too early. (Operators run
/// twice then: at once on copies, to determine the shapes of their results.)
namespace trireme::test::gpu {

/// Whether work may run after its launch.
[[nodiscard]] bool late();
/// Whether a thread of the device runs it.
[[nodiscard]] bool concurrent();
/// Work of the device, launched by the calling thread on its current stream or another: or recorded, in order, while
/// that thread records.
void submit(std::function<void()> work);
void submit(c10::StreamId stream, std::function<void()> work);
[[nodiscard]] c10::StreamId& current_stream();

/// Called on the launching thread with a description of every kernel, operator of libtorch and collective of NCCL that
/// is launched on its current stream; null: not called.
std::function<void(const std::string& launch)>& launch_listener();

/// All that was launched on a stream so far.
struct Moment {
  c10::StreamId stream = 0;
  std::int64_t launched = 0;
};
[[nodiscard]] Moment moment(c10::StreamId stream);
/// Returns when that is done.
void reach(const Moment& moment);
/// Whether it is done; nothing is made to run.
[[nodiscard]] bool is_done(const Moment& moment);
/// Delays later launches on `stream` until `moment` is done.
void hold_up(c10::StreamId stream, const Moment& moment);
/// Holds it up, on a concurrent device, until `done` returns true, which the device asks again and again from the time
/// at which all that was launched before is done.
void hold_up(c10::StreamId stream, std::function<bool()> done);

/// The same for the host, which is counted: how often it has waited for an event, a stream or a copy to or from its own
/// memory.
void wait_for(const Moment& moment);
[[nodiscard]] std::int64_t host_waits();

/// Makes all later queries of events return "not done", however often they are made; or "done" again (the default).
void hold_events(bool holds);
[[nodiscard]] bool events_are_held();
/// Makes all later queries of events throw, as after an error of a kernel; or none.
void fail_events(bool fails);
[[nodiscard]] bool events_fail();

/// The number of the GPU that this process took (device::use_gpu).
int& taken_gpu();

/// While one lives, the calling thread is the device: no other is, and the device's memory may be touched.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

/// Recording of the calling thread, which stores submitted work instead of running it; null: it runs.
struct Recording {
  int pool = 0;  ///< of the device's memory, used by no other recording
  std::vector<std::function<void()>> work;
};
Recording*& recording();

/// The device's memory, given again to the stream that had it: filled with NaNs when it is allocated and when it is
/// freed. Of a recording's pool while the calling thread records. Charges the calling thread's account.
[[nodiscard]] c10::Allocator& memory();
/// That a block is used on another stream, too: it is not given again before that is done.
void used_on(const void* block, c10::StreamId stream);
/// Whether an address is in the device's memory.
[[nodiscard]] bool is_there(const void* address);
/// A new pool, and what it has that is not in use.
[[nodiscard]] int new_pool();
[[nodiscard]] std::size_t idle_bytes(int pool);
/// Closes device memory allocated later while no device
/// work runs: an access then ends with SIGSEGV. Slow.
void close_memory(bool closes);
/// The most that may be allocated. Beyond it an allocation throws EnvironmentError as libtorch's does.
void cap(std::size_t bytes);

}  // namespace trireme::test::gpu
