// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::comm {

/// The names of shared-memory segments begin so; the number of the process that creates them follows.
inline constexpr std::string_view segment_prefix = "trireme-";

/// Removes what jobs have left in `directory` that were killed while a segment of theirs had a name: its process is
/// gone and its lock is free. Segments of other users are left alone.
void remove_dead_segments(const std::string& directory = "/dev/shm");

}  // namespace trireme::comm
