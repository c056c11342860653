// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launchers.hpp"
#include "kernels/cuda/loss/softmax.cuh"

namespace trireme::kernels::cuda {
namespace {

/// Two blocks of that many threads run on a multiprocessor: one reads a row from memory while the other reads its own
/// again from the second-level cache and writes. More would evict each other's rows from that cache.
constexpr int row_threads = 512, row_blocks = 2;

/// Columns between two packs of a thread.
__device__ inline std::int64_t step_of(int n) { return static_cast<std::int64_t>(blockDim.x) * n; }
/// Number of this thread's packs of a row.
__device__ inline std::int64_t packs_of(std::int64_t width, int n) {
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * n;
  return first < width ? (width - 1 - first) / step_of(n) + 1 : 0;
}

/// Calls visit(packs, column) for `count` packs, `step` columns apart, two at a time, while the next two are on their
/// way: 64 KiB a multiprocessor, more than a device's memory takes to answer.
template <int n, class T, class Visit>
__device__ void each_two_packs(const T* row, std::int64_t first, std::int64_t step, std::int64_t count,
                               const Visit& visit) {
  Pack<T, n> next[2];
  const auto fetch = [&](std::int64_t i) {
    next[0] = load<n>(row + i);
    next[1] = load<n>(row + i + step);
  };
  std::int64_t i = first;
  if (count >= 2) fetch(i);
  for (; count >= 2; count -= 2, i += 2 * step) {
    const Pack<T, n> now[2] = {next[0], next[1]};
    if (count >= 4) fetch(i + 2 * step);
    visit(now, i);
  }
  if (count > 0) {
    const Pack<T, n> last[1] = {load<n>(row + i)};
    visit(last, i);
  }
}

/// Maximum and sum of exponentials of a row, by all threads of the block, in one pass (Milakov and Gimelshein 2018).
template <int n, class T>
__device__ Two softmax_of(const T* row, std::int64_t width, Two* scratch) {
  Two s{-FLT_MAX, 0};
  each_two_packs<n>(row, static_cast<std::int64_t>(threadIdx.x) * n, step_of(n), packs_of(width, n),
                    [&](const auto& x, std::int64_t) { s = joined(s, x); });
  return block_reduce(s, Join{}, scratch);
}

/// From the row's end to its beginning: the elements read last are the likeliest to be in a cache.
template <int n, class T>
__device__ void turn_row(T* row, std::int64_t width, const Turn& turn) {
  const std::int64_t step = step_of(n), packs = packs_of(width, n);
  const std::int64_t last = static_cast<std::int64_t>(threadIdx.x) * n + (packs - 1) * step;
  each_two_packs<n>(row, last, -step, packs, [&](const auto& x, std::int64_t i) {
    for (const auto& pack : x) {
      store<n>(row + i, turn(pack));
      i -= step;
    }
  });
  turn.put_target<n>(row, width);
}

template <int n, class T>
__device__ void clear_row(T* row, std::int64_t width) {
  for (std::int64_t i = threadIdx.x * n; i < width; i += static_cast<std::int64_t>(blockDim.x) * n)
    store<n>(row + i, Pack<T, n>{});
}

template <class T, int n>
__global__ void __launch_bounds__(row_threads, row_blocks)
    cross_entropy_kernel(Matrix<T> logits, const std::int32_t* targets, bool gradient, float scale, float z_loss,
                         Losses losses) {
  __shared__ Two scratch[32];
  const std::int64_t n_row = blockIdx.x;
  T* row = logits.data + n_row * logits.stride;
  const std::int32_t target = targets[n_row];
  expect(target >= -1 && target < logits.width, "cross_entropy: a target is outside the vocabulary");
  if (target < 0) {
    if (gradient) clear_row<n>(row, logits.width);
    if (threadIdx.x == 0) losses.put_none(n_row);
    return;
  }
  const float logit = static_cast<float>(row[target]);  // before block_reduce: no thread has written to the row yet
  const Two s = softmax_of<n>(row, logits.width, scratch);
  if (threadIdx.x == 0) losses.put(n_row, s.b, logit, s.a, z_loss);
  if (gradient) turn_row<n>(row, logits.width, Turn(s, logit, scale, z_loss, target));
}

template <class T, int n>
__global__ void __launch_bounds__(row_threads, row_blocks)
    statistics_kernel(Matrix<const T> logits, const std::int32_t* targets, std::int64_t first, float* statistics) {
  __shared__ Two scratch[32];
  const std::int64_t n_row = blockIdx.x;
  const T* row = logits.data + n_row * logits.stride;
  const Two s = softmax_of<n>(row, logits.width, scratch);
  if (threadIdx.x > 0) return;
  const std::int64_t column = targets[n_row] - first;
  const bool here = targets[n_row] >= 0 && column >= 0 && column < logits.width;
  statistics[3 * n_row] = s.a;
  statistics[3 * n_row + 1] = s.b;
  statistics[3 * n_row + 2] = here ? static_cast<float>(row[column]) : 0.0F;
}

struct Combine {
  const float* gathered;
  std::int64_t ranks;
  const std::int32_t* targets;
  std::int64_t count;
  float* softmax;
  float z_loss;
  Losses losses;
  template <int n>
  __device__ void run(std::int64_t i) const {
    float top = gathered[3 * i];
    for (std::int64_t r = 1; r < ranks; ++r) top = fmaxf(top, gathered[(r * count + i) * 3]);
    double sum = 0, logit = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      const float* of_rank = gathered + (r * count + i) * 3;
      sum += static_cast<double>(of_rank[1]) * exp(static_cast<double>(of_rank[0]) - static_cast<double>(top));
      logit += static_cast<double>(of_rank[2]);
    }
    softmax[2 * i] = top;
    softmax[2 * i + 1] = static_cast<float>(sum);
    if (targets[i] >= 0)
      losses.put(i, sum, logit, top, z_loss);
    else
      losses.put_none(i);
  }
};

template <class T, int n>
__global__ void __launch_bounds__(row_threads, row_blocks)
    gradient_part_kernel(Matrix<T> logits, const std::int32_t* targets, std::int64_t first, const float* softmax,
                         float scale, float z_loss) {
  const std::int64_t n_row = blockIdx.x;
  T* row = logits.data + n_row * logits.stride;
  if (targets[n_row] < 0) return clear_row<n>(row, logits.width);
  const std::int64_t column = targets[n_row] - first;
  const bool here = column >= 0 && column < logits.width;
  const float logit = here ? static_cast<float>(row[column]) : 0.0F;
  __syncthreads();  // all have read the target's logit
  const Two s{softmax[2 * n_row], softmax[2 * n_row + 1]};
  turn_row<n>(row, logits.width, Turn(s, logit, scale, z_loss, here ? column : -1));
}

Grid grid_of(std::int64_t rows, std::int64_t width, int n) {
  return {.blocks = rows, .threads = threads_for(ceil_div(width, n), row_threads)};
}

}  // namespace

template <class T>
void cross_entropy(Matrix<T> logits, const std::int32_t* targets, bool gradient, float scale, float z_loss,
                   double* losses) {
  if (gradient && cross_entropy_in_shared(logits, targets, scale, z_loss, losses)) return;
  const auto run = [&](auto kernel, int n) {
    launch("cross_entropy", kernel, grid_of(logits.rows, logits.width, n), logits, targets, gradient, scale, z_loss,
           Losses{losses, logits.rows});
  };
  constexpr int n = whole_pack<T>;
  fits<n>(logits) ? run(cross_entropy_kernel<T, n>, n) : run(cross_entropy_kernel<T, 1>, 1);
}

template <class T>
void vocabulary_statistics(Matrix<const T> logits, const std::int32_t* targets, std::int64_t first, float* statistics) {
  const auto run = [&](auto kernel, int n) {
    launch("vocabulary_statistics", kernel, grid_of(logits.rows, logits.width, n), logits, targets, first, statistics);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(logits) ? run(statistics_kernel<T, n>, n) : run(statistics_kernel<T, 1>, 1);
}

void combine_statistics(const float* gathered, std::int64_t ranks, const std::int32_t* targets, std::int64_t count,
                        float* softmax, float z_loss, double* losses) {
  for_range<1>("combine_statistics", count, Combine{gathered, ranks, targets, count, softmax, z_loss, {losses, count}});
}

template <class T>
void cross_entropy_gradient_part(Matrix<T> logits, const std::int32_t* targets, std::int64_t first,
                                 const float* softmax, float scale, float z_loss) {
  const auto run = [&](auto kernel, int n) {
    launch("cross_entropy_gradient_part", kernel, grid_of(logits.rows, logits.width, n), logits, targets, first,
           softmax, scale, z_loss);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(logits) ? run(gradient_part_kernel<T, n>, n) : run(gradient_part_kernel<T, 1>, 1);
}

template void cross_entropy(Matrix<float>, const std::int32_t*, bool, float, float, double*);
template void vocabulary_statistics(Matrix<const float>, const std::int32_t*, std::int64_t, float*);
template void cross_entropy_gradient_part(Matrix<float>, const std::int32_t*, std::int64_t, const float*, float, float);
template void cross_entropy(Matrix<c10::BFloat16>, const std::int32_t*, bool, float, float, double*);
template void vocabulary_statistics(Matrix<const c10::BFloat16>, const std::int32_t*, std::int64_t, float*);
template void cross_entropy_gradient_part(Matrix<c10::BFloat16>, const std::int32_t*, std::int64_t, const float*, float,
                                          float);

}  // namespace trireme::kernels::cuda
