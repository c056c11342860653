// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// Preloaded into a program (LD_PRELOAD), this library counts what grows with the ranks of a job: MPI calls with their
/// messages and bytes, and what is asked of the file system.
///
///   COUNTS=DIRECTORY         where each rank writes rank-N.json when it leaves MPI: {"what": [calls, bytes], ...}
///   COUNTED_ROOT=DIRECTORY   paths below it are counted; "#" stands for each number in them
///   COUNTS_LOG=FILE          where every call for a path gets a line as well, of all ranks; also of jobs that are
///   killed
namespace counted {

/// Counts a call. Any thread.
void add(const std::string& what, std::int64_t bytes = 0);

/// Starts counting `heap_peak`: excludes memory that libraries keep from the time of loading.
void begin_heap();
/// The most bytes that C++ objects took at a time.
[[nodiscard]] std::int64_t heap_peak();

/// Writes what was counted, once. rank: of MPI_COMM_WORLD.
void write(int rank);

}  // namespace counted
