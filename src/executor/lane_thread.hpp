// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::executor {

/// Requests short time slices for the calling thread, so that it preempts a thread that computes on the same core: a
/// lane works for microseconds and then waits for its link, and a late start cannot be hidden. A hint that affects only
/// timing: Linux supports it since 6.12 (sched_setattr(2), sched_runtime of SCHED_OTHER); earlier kernels prefer
/// threads that mostly sleep anyway.
void prefer_short_slices();

}  // namespace trireme::executor
