// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace trireme::io {

/// Calls `work` for every number below `count`, typically one per file of a directory. Uses up to 16 threads, as many
/// as a file system serves requests of one client at once; for few files, or if no thread can be started, the calling
/// thread. Returns when all are done; then rethrows the first exception of `work`, which any thread may call.
void concurrently(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace trireme::io
