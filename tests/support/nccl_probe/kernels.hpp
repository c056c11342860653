// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace probe {

/// A kernel that takes so many clocks of a multiprocessor.
void spin(unsigned blocks, unsigned threads, long long clocks, cudaStream_t stream);
/// Kernel 0 or 1, which do nothing: of a program that calls this once for each, never loaded before.
void launch_for_the_first_time(int which, cudaStream_t stream);

}  // namespace probe
