// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/timeline/timeline.hpp"

namespace trireme::timeline {

/// A kernel or copy as a GPU ran it, on the clock of the lanes' spans.
struct Kernel {
  std::string name;
  std::int64_t stream = 0;
  Clock::time_point begin;
  Clock::time_point end;
};

/// Records the kernels of a device, by libtorch's profiler (Kineto, CUPTI), which cannot be nested: one instance at a
/// time in a process. The thread that creates one ends it.
class KernelRecording {
 public:
  /// gpu false: libtorch's operators on the calling thread of the CPU instead, for tests.
  explicit KernelRecording(bool gpu = true);
  KernelRecording(const KernelRecording&) = delete;
  KernelRecording& operator=(const KernelRecording&) = delete;
  ~KernelRecording();

  /// Kernels that have run since, by begin, once the device is
  /// idle. Empty if libtorch or the driver records nothing.
  [[nodiscard]] std::vector<Kernel> end();

 private:
  bool gpu_;
  bool running_ = true;
};

}  // namespace trireme::timeline
