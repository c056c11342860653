// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::comm {

/// The names of shared-memory segments begin so; the number of the process that creates them follows.
inline constexpr std::string_view segment_prefix = "trireme-";

/// Removes segments in `directory` of jobs that were killed before unlinking them: the process does not exist and the
/// lock is free. Does not touch segments of other users.
void remove_dead_segments(const std::string& directory = "/dev/shm");

}  // namespace trireme::comm
