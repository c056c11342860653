// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace trireme {

/// Whether process `pid` of this node has ended: it does not exist, or is a zombie whose parent has not reaped it
/// yet. Not every container's first process reaps. A process of another user counts as running.
[[nodiscard]] bool process_has_ended(pid_t pid);

/// When a process of this node started, in ticks since the node did; "" when there is none, or it does not show.
[[nodiscard]] std::string process_start(pid_t pid);

/// Seconds since this process started, the time before `main` included; 0 if the system does not show it.
[[nodiscard]] double process_age_seconds();

}  // namespace trireme
