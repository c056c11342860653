// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <functional>
#include <vector>

/// A GPU made up out of the host, for tests where there is none: tensors of device type CUDA, whose memory only the
/// device's own work has to touch (`close_memory`). Libtorch's operators run there by its CPU kernels (backend.cpp),
/// ours by the emulator in tests/kernels/on_host. All of it runs at once, one thing after the other, where it is
/// launched: so this shows what is computed on which memory, and not that streams wait for each other, which
/// executor/device_lanes_test does.
namespace trireme::test::gpu {

/// Work of the device, launched by the calling thread: runs, or is recorded while that thread records.
void submit(std::function<void()> work);

/// While one lives, the calling thread is the device: no other is, and the device's memory may be touched.
class Running {
 public:
  Running();
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

/// Where the calling thread keeps what it submits instead of running it; null: it runs.
struct Recording {
  int pool = 0;  ///< of the device's memory, never given to anybody else
  std::vector<std::function<void()>> work;
};
Recording*& recording();

/// The device's memory: filled with NaNs when it is allocated and when it is freed. Of a recording's pool while the
/// calling thread records. Charges the calling thread's account.
[[nodiscard]] c10::Allocator& memory();
/// Whether an address is in the device's memory.
[[nodiscard]] bool is_there(const void* address);
/// A new pool, and what it has that is not in use.
[[nodiscard]] int new_pool();
[[nodiscard]] std::size_t idle_bytes(int pool);
/// From now on the device's memory is closed where nothing runs: whoever touches it ends with SIGSEGV. Slow.
void close_memory(bool closes);
/// The most that may be allocated. Beyond it an allocation throws EnvironmentError as libtorch's does.
void cap(std::size_t bytes);
/// How often memory came from a pool.
[[nodiscard]] int allocations_of(int pool);

}  // namespace trireme::test::gpu
