// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "trireme/base/ceil_div.hpp"

/// Launches kernels of all layers, by cudaLaunchKernelEx instead of <<<>>>, so that the same sources compile as plain
/// C++ against the emulator in tests/kernels/on_host.
namespace trireme::device::cuda {

/// The stream that libtorch's operators of the calling thread run on.
[[nodiscard]] cudaStream_t current_stream();

/// Throws EnvironmentError that names the kernel and CUDA's own words.
void check_launch(cudaError_t result, const char* kernel);

/// Limits of blocks on the GPU of the calling thread; queried once.
struct Chip {
  int multiprocessors = 0;
  int shared_bytes = 0;          ///< of a multiprocessor
  int shared_bytes_a_block = 0;  ///< the most that one block may have
  int reserved_bytes = 0;        ///< of each block, for CUDA itself
};
[[nodiscard]] const Chip& chip();

/// Allows a kernel this much dynamic shared memory. By default 48 KiB are allowed, including static shared memory.
void allow_shared_bytes(const void* kernel, const char* name, int bytes);

/// threads: a multiple of 32. shared_bytes: of each block, in addition to its kernel's declarations; see
/// dynamic_shared().
struct Grid {
  std::int64_t blocks = 0;
  int threads = 256;
  std::int64_t blocks_y = 1;
  int shared_bytes = 0;
};

/// Starts kernel(arguments...) on the current stream; does nothing for an empty grid.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, Arguments... arguments) {
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
  if (grid.blocks > 0x7fffffff || grid.blocks_y > 0xffff) throw std::length_error(name);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.blocks_y));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(grid.shared_bytes);
  config.stream = current_stream();
  if (grid.shared_bytes > 0) allow_shared_bytes(reinterpret_cast<const void*>(kernel), name, grid.shared_bytes);
  check_launch(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
}

/// A block size for `items` of work: whole warps, at most `most`.
[[nodiscard]] constexpr int threads_for(std::int64_t items, int most) {
  const std::int64_t warps = ceil_div(items < 1 ? 1 : items, 32);
  return warps * 32 > most ? most : static_cast<int>(warps * 32);
}

}  // namespace trireme::device::cuda
