// SPDX-License-Identifier: Apache-2.0
#include "executor/lane_thread.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace trireme::executor {
namespace {

/// sched_setattr(2)'s argument in its first version; the C library has none.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = SCHED_OTHER;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_nanoseconds = 0, deadline = 0, period = 0;
};

}  // namespace

void prefer_short_slices() {
  const auto self = static_cast<id_t>(gettid());
  const Attributes wish{.nice = getpriority(PRIO_PROCESS, self), .runtime_nanoseconds = 100'000};
  static_cast<void>(syscall(SYS_sched_setattr, 0, &wish, 0));
}

}  // namespace trireme::executor
