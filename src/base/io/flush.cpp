// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/io/flush.hpp"

#include <unistd.h>

#include <cerrno>
#include <mutex>

namespace trireme::io {
namespace {

using Clock = std::chrono::steady_clock;

struct Flushes {
  std::mutex mutex;
  int under_way = 0;
  Clock::time_point changed;
};

Flushes& flushes() {
  static Flushes only;
  return only;
}

void count(int change) {
  Flushes& all = flushes();
  const std::scoped_lock lock(all.mutex);
  all.under_way += change;
  all.changed = Clock::now();
}

}  // namespace

int flush_to_disk(int descriptor) {
  count(1);
  int result = 0;
  do result = ::fsync(descriptor);  // network file systems let signals interrupt it
  while (result != 0 && errno == EINTR);
  const int error = errno;
  count(-1);
  errno = error;
  return result;
}

std::optional<Clock::time_point> flushing_since() {
  Flushes& all = flushes();
  const std::scoped_lock lock(all.mutex);
  return all.under_way > 0 ? std::optional(all.changed) : std::nullopt;
}

}  // namespace trireme::io
