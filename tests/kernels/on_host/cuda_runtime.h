// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>

/// Enough of CUDA to run the kernels of src/*/cuda as plain C++ on the host: the very same sources, compiled with this
/// header in the place of CUDA's. Blocks run one after the other; the threads of a block are fibres of one thread,
/// which change at barriers and shuffles. A barrier that not every thread of the block (of the warp, for a shuffle)
/// reaches ends the process. So index arithmetic, bounds and barriers are tested if there is no GPU; races between
/// barriers and speed are not.

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
using cudaError_t = int;
using cudaStream_t = void*;
inline constexpr cudaError_t cudaSuccess = 0;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace trireme::test {

/// Runs `thread` for every thread of every block, which has so many bytes of dynamic_shared().
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread);

/// Dynamic shared memory of the next grid: CUDA allows less than 48 KiB by default.
void allow_shared(std::size_t bytes);

/// Gets every kernel's run instead, if it is set.
extern void (*launcher)(const std::function<void()>& run);

/// Called at every launch, if it is set. Products of cublasLt have no kernel; their grid is {m, n, k}.
extern void (*launch_listener)(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes);

/// Returns the `bits` of the thread with index `threadIdx.x ^ step`; all threads of the warp call it.
std::uint64_t exchange_in_warp(std::uint64_t bits, int step);

}  // namespace trireme::test

void __syncthreads();

template <class V>
V __shfl_xor_sync(unsigned mask, V value, int step) {
  static_assert(sizeof(V) <= sizeof(std::uint64_t));
  if (mask != 0xffffffffU) std::abort();
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = trireme::test::exchange_in_warp(bits, step);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline void __stwb(uint4* to, uint4 value) { *to = value; }
inline void __stcs(uint4* to, uint4 value) { *to = value; }

/// Dynamic shared memory of the running block.
void* emulated_dynamic_shared();
/// A copy is made when the thread waits for its group, as late as it may be; or at once.
extern bool copies_at_once;
void emulated_copy(void* to, const void* from, std::size_t bytes);
void emulated_end_copies();
void emulated_wait_for_copies(std::size_t left);

inline int atomicAdd(int* to, int term) {
  const int before = *to;
  *to += term;
  return before;
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto run = [grid = config->gridDim, block = config->blockDim, shared = config->dynamicSmemBytes, kernel,
                    ... values = Parameters(arguments)] {
    trireme::test::run_grid(grid, block, shared, [&] { kernel(values...); });
  };
  if (trireme::test::launch_listener != nullptr)
    trireme::test::launch_listener(reinterpret_cast<const void*>(kernel), config->gridDim, config->blockDim,
                                   config->dynamicSmemBytes);
  if (trireme::test::launcher != nullptr)
    trireme::test::launcher(run);
  else
    run();
  return cudaSuccess;
}
