// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace trireme::io {

/// Errors that asking again does not change.
[[nodiscard]] inline bool stays(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == ELOOP ||
         error == ENAMETOOLONG || error == EINVAL;
}

/// Tries `call` until it holds, for a second in all where its errno may pass: file servers that fail over, a moment
/// without memory or descriptors. Returns the errno that stays, or 0.
template <class Call>
int last_error(Call&& call) {
  constexpr int most_tries = 6;
  std::chrono::milliseconds pause{32};  // each twice as long as the one before: a second in all
  for (int i = 1; !call();) {
    const int error = errno;
    if (error == EINTR) continue;
    if (i++ == most_tries || stays(error)) return error;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
  return 0;
}

}  // namespace trireme::io
