// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::executor {

/// Asks the kernel for short time slices for the calling thread, so that it gets the core at once from a thread that
/// computes there: a lane works for microseconds and then waits for its link, and what it starts late nobody can hide.
/// A wish, which changes nothing but when things happen: Linux honours it since 6.12 (sched_setattr(2), sched_runtime
/// of SCHED_OTHER), before that threads that mostly sleep came first anyway.
void prefer_short_slices();

}  // namespace trireme::executor
