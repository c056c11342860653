// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace trireme::io {

/// Calls `work` for every number below `count`, which are many files of a directory: from up to 16 threads, as a file
/// system answers so many requests of a client at a time; a few files, or where no thread can be started: on this
/// thread. Returns when all are done; then rethrows the first exception of `work`, which any thread may call.
void concurrently(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace trireme::io
