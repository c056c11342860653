// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device/cuda/launch.cuh"
#include "device/cuda/matrix.hpp"

/// Shared by kernels: packs of neighbours that move by one instruction, and sums over a block in a fixed order.
namespace trireme::device::cuda {

/// n neighbours, moved by instructions of up to 16 bytes where `n` is above 1.
template <class T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T at[n];
};

/// Number of elements in 16 bytes.
template <class T>
inline constexpr int whole_pack = 16 / static_cast<int>(sizeof(T));

template <int n, class T>
__device__ inline Pack<T, n> load(const T* from) {
  return *reinterpret_cast<const Pack<T, n>*>(from);
}
/// streaming: for values that are not read again soon; other lines stay in the caches.
template <int n, bool streaming = false, class T>
__device__ inline void store(T* to, const Pack<T, n>& pack) {
  // By an intrinsic: a compiler that sees assignments of words makes four stores of some packs.
  if constexpr (sizeof(pack) % sizeof(uint4) == 0) {
    uint4 words[sizeof(pack) / sizeof(uint4)];
    memcpy(words, &pack, sizeof(pack));
    for (std::size_t w = 0; w < sizeof(pack) / sizeof(uint4); ++w) {
      if constexpr (streaming)
        __stcs(reinterpret_cast<uint4*>(to) + w, words[w]);
      else
        __stwb(reinterpret_cast<uint4*>(to) + w, words[w]);
    }
  } else {
    *reinterpret_cast<Pack<T, n>*>(to) = pack;
  }
}

/// Grid::shared_bytes of the block, at a multiple of 16 bytes.
__device__ inline void* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ uint4 shared_by_the_block[];
  return shared_by_the_block;
#else
  return emulated_dynamic_shared();
#endif
}

/// Starts a copy of 16 bytes into shared memory that no register waits for. Copies belong to the group that
/// `end_copies` ends next.
__device__ inline void copy_16_bytes(void* to, const void* from) {
#ifdef __CUDACC__
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
  emulated_copy(to, from, 16);
#endif
}
__device__ inline void end_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulated_end_copies();
#endif
}
/// Waits for the calling thread's groups but the `left` last ones.
template <int left>
__device__ inline void wait_for_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#else
  emulated_wait_for_copies(left);
#endif
}

/// Whether packs of n may be used on a matrix: each of its rows starts at a multiple of the pack's bytes and is a
/// whole number of packs. No matrix fits always.
template <int n, class T>
bool fits(const Matrix<T>& m) {
  const auto bytes = alignof(Pack<T, n>);
  return m.data == nullptr || (reinterpret_cast<std::uintptr_t>(m.data) % bytes == 0 && m.width % n == 0 &&
                               (m.rows < 2 || m.stride % n == 0));
}
template <int n, class T>
bool fits(const T* vector) {
  return reinterpret_cast<std::uintptr_t>(vector) % alignof(Pack<T, n>) == 0;
}

struct Sum {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

/// Two numbers that are reduced together.
struct Two {
  float a, b;
  __device__ friend Two operator+(Two x, Two y) { return {x.a + y.a, x.b + y.b}; }
};

template <class V>
__device__ inline V from_lane(V value, int step) {
  return __shfl_xor_sync(0xffffffffU, value, step);
}
__device__ inline Two from_lane(Two value, int step) { return {from_lane(value.a, step), from_lane(value.b, step)}; }

/// `value` of all threads of the block joined by `op`, the same bits in every thread, with one barrier. scratch:
/// shared, 32 values, which no thread may still read. Every thread of the block calls it; the block is made of whole
/// warps.
template <class V, class Op>
__device__ V block_reduce_once(V value, const Op& op, V* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int step = 16; step > 0; step /= 2) value = op(value, from_lane(value, step));
  if (lane == 0) scratch[warp] = value;
  __syncthreads();
  value = scratch[0];
  for (int w = 1; w < warps; ++w) value = op(value, scratch[w]);
  return value;
}

/// The same, for a scratch that may be used again at once.
template <class V, class Op>
__device__ V block_reduce(V value, const Op& op, V* scratch) {
  __syncthreads();  // all have read the scratch of an earlier reduction
  return block_reduce_once(value, op, scratch);
}

/// 2^x in one instruction: results below the least normal number are 0.
__device__ inline float power_of_two(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/// exp(x), x / y and derived functions for T: to the last places of fp32, or in fewer instructions if the result is
/// rounded to bf16.
template <class T>
__device__ inline float exponential(float x) {
  return expf(x);
}
template <>
__device__ inline float exponential<c10::BFloat16>(float x) {
  return power_of_two(1.4426950409F * x);
}
template <class T>
__device__ inline float quotient(float x, float y) {
  return x / y;
}
template <>
__device__ inline float quotient<c10::BFloat16>(float x, float y) {
  return __fdividef(x, y);
}

/// Stops the grid with CUDA's message for a failed assertion, in builds with NDEBUG too.
__device__ inline void expect(bool right, const char* what) {
  if (!right) __assert_fail(what, "trireme", 0, "kernel");
}

/// Calls body.run<n>(row, i) for every pack of the rows of a matrix.
template <int n, class Body>
__global__ void rows_kernel(std::int64_t width, Body body) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  if (i < width) body.template run<n>(static_cast<std::int64_t>(blockIdx.x), i);
}

template <int n, class Body>
void for_each_pack(const char* name, std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t packs = ceil_div(width, n);
  const int threads = threads_for(packs, 256);
  launch(name, rows_kernel<n, Body>, {.blocks = rows, .threads = threads, .blocks_y = ceil_div(packs, threads)}, width,
         body);
}

/// Calls body.run<n>(i) for every whole pack of [0, count), and body.run<1>(i) for the remainder.
template <int n, class Body>
__global__ void range_kernel(std::int64_t count, Body body) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  if (i + n <= count) {
    body.template run<n>(i);
  } else {
    for (std::int64_t j = i; j < count; ++j) body.template run<1>(j);
  }
}

template <int n, class Body>
void for_range(const char* name, std::int64_t count, const Body& body) {
  launch(name, range_kernel<n, Body>, {.blocks = ceil_div(ceil_div(count, n), 256), .threads = 256}, count, body);
}

}  // namespace trireme::device::cuda
