// SPDX-License-Identifier: Apache-2.0
#include <cfloat>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr int most_threads = 1024;

/// a: the largest so far, never below the least finite number, so that differences are never NaN by themselves;
/// b: the sum of exp(x - a).
struct Join {
  __device__ Two operator()(Two x, Two y) const {
    const float top = fmaxf(x.a, y.a);
    return {top, x.b * expf(x.a - top) + y.b * expf(y.a - top)};
  }
};

/// Maximum and sum of exponentials of a row, by all threads of the block, in one pass (Milakov and Gimelshein 2018).
template <int n, class T>
__device__ Two softmax_of(const T* row, std::int64_t width, Two* scratch) {
  Two s{-FLT_MAX, 0};
  for (std::int64_t i = threadIdx.x * n; i < width; i += static_cast<std::int64_t>(blockDim.x) * n) {
    const auto x = load<n>(row + i);
    float top = s.a;
    for (int k = 0; k < n; ++k) top = fmaxf(top, static_cast<float>(x.at[k]));
    float sum = s.b * expf(s.a - top);
    for (int k = 0; k < n; ++k) sum += expf(static_cast<float>(x.at[k]) - top);
    s = {top, sum};
  }
  return block_reduce(s, Join{}, scratch);
}

/// row[i] = scale * (softmax * (1 + 2 * z_loss * logsumexp) - onehot); `column` may lie outside the row.
template <int n, class T>
__device__ void turn_row(T* row, std::int64_t width, std::int64_t column, float logit, Two s, float scale,
                         float z_loss) {
  const float weight = 1.0F + 2.0F * z_loss * (s.a + logf(s.b));  // exactly 1 without z-loss
  const float factor = scale * weight / s.b;
  const float of_target = scale * (weight * (expf(logit - s.a) / s.b) - 1.0F);
  for (std::int64_t i = threadIdx.x * n; i < width; i += static_cast<std::int64_t>(blockDim.x) * n) {
    auto x = load<n>(row + i);
    for (int k = 0; k < n; ++k) {
      const float value = factor * expf(static_cast<float>(x.at[k]) - s.a);
      x.at[k] = static_cast<T>(i + k == column ? of_target : value);
    }
    store<n>(row + i, x);
  }
}

template <int n, class T>
__device__ void clear_row(T* row, std::int64_t width) {
  for (std::int64_t i = threadIdx.x * n; i < width; i += static_cast<std::int64_t>(blockDim.x) * n)
    store<n>(row + i, Pack<T, n>{});
}

/// The losses of tokens, [2, tokens]: cross-entropy, then z-loss.
struct Losses {
  double* at;
  std::int64_t tokens;
  __device__ void put(std::int64_t token, double sum, double logit, double top, double z_loss) const {
    const double log_z = top + log(sum);
    at[token] = log(sum) - (logit - top);
    at[tokens + token] = z_loss * log_z * log_z;
  }
  __device__ void put_none(std::int64_t token) const { at[token] = at[tokens + token] = 0; }
};

template <class T, int n>
__global__ void cross_entropy_kernel(Matrix<T> logits, const std::int32_t* targets, bool gradient, float scale,
                                     float z_loss, Losses losses) {
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
  const float logit = static_cast<float>(row[target]);  // before block_reduce: nobody has written to the row yet
  const Two s = softmax_of<n>(row, logits.width, scratch);
  if (threadIdx.x == 0) losses.put(n_row, s.b, logit, s.a, z_loss);
  if (gradient) turn_row<n>(row, logits.width, target, logit, s, scale, z_loss);
}

template <class T, int n>
__global__ void statistics_kernel(Matrix<const T> logits, const std::int32_t* targets, std::int64_t first,
                                  float* statistics) {
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
__global__ void gradient_part_kernel(Matrix<T> logits, const std::int32_t* targets, std::int64_t first,
                                     const float* softmax, float scale, float z_loss) {
  const std::int64_t n_row = blockIdx.x;
  T* row = logits.data + n_row * logits.stride;
  if (targets[n_row] < 0) return clear_row<n>(row, logits.width);
  const std::int64_t column = targets[n_row] - first;
  const bool here = column >= 0 && column < logits.width;
  const float logit = here ? static_cast<float>(row[column]) : 0.0F;
  __syncthreads();  // all have read the target's logit
  turn_row<n>(row, logits.width, here ? column : -1, logit, Two{softmax[2 * n_row], softmax[2 * n_row + 1]}, scale,
              z_loss);
}

Grid grid_of(std::int64_t rows, std::int64_t width, int n) {
  return {.blocks = rows, .threads = threads_for(ceil_div(width, n), most_threads)};
}

}  // namespace

template <class T>
void cross_entropy(Matrix<T> logits, const std::int32_t* targets, bool gradient, float scale, float z_loss,
                   double* losses) {
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
