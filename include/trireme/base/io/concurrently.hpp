// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace trireme::io {

/// Calls `work` for every number below `count`, which are many files of a directory: from up to 16 threads, as a file
/// system answers so many requests of a client at a time; few ones, and where no thread can be started, from this
/// thread. Returns when all are done. work: throws nothing; any thread may call it.
void concurrently(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace trireme::io
