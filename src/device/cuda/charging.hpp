// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace trireme::device::cuda {

/// Makes libtorch's caching allocator on the GPUs charge allocations to the calling thread's category, and
/// throw EnvironmentError with the table of categories if it has no more. Once a process, after CUDA is
/// initialised.
void charge_gpu_memory();

}  // namespace trireme::device::cuda
