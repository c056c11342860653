// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr int lanes = 32, groups = 8;

/// A block sums 32 neighbouring columns: warp g the chunks g, g + 8, ...; then the warps' sums in order.
__global__ void sum_chunks_kernel(const float* partial, std::int64_t chunks, std::int64_t stride, std::int64_t width,
                                  float* grad, bool accumulate) {
  __shared__ float sums[groups][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t d = blockIdx.x * std::int64_t{lanes} + lane;
  float sum = 0;
  if (d < width)
    for (std::int64_t c = group; c < chunks; c += groups) sum += partial[c * stride + d];
  sums[group][lane] = sum;
  __syncthreads();
  if (group > 0 || d >= width) return;
  float total = accumulate ? grad[d] : 0.0F;
  for (int g = 0; g < groups; ++g) total += sums[g][lane];
  grad[d] = total;
}

/// blockIdx.x: 256 packs of columns; blockIdx.y: a chunk of rows.
template <class T, int n>
__global__ void column_sums_kernel(Matrix<const T> from, std::int64_t chunk_rows, float* partial) {
  const std::int64_t d = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  if (d >= from.width) return;
  const std::int64_t begin = blockIdx.y * chunk_rows;
  const std::int64_t end = begin + chunk_rows < from.rows ? begin + chunk_rows : from.rows;
  float sums[n] = {};
  for (std::int64_t row = begin; row < end; ++row) {
    const auto x = load<n>(from.data + row * from.stride + d);
    for (int k = 0; k < n; ++k) sums[k] += static_cast<float>(x.at[k]);
  }
  for (int k = 0; k < n; ++k) partial[blockIdx.y * from.width + d + k] = sums[k];
}

std::int64_t chunk_rows_of(std::int64_t rows, std::int64_t width, int element_size) {
  const std::int64_t columns = ceil_div(width * element_size, 16 * 256);  // blocks side by side
  const std::int64_t wanted = ceil_div(1056, columns);
  const std::int64_t chunk = ceil_div(rows, wanted);
  return chunk < 8 ? 8 : chunk;
}

__global__ void add_sum_kernel(const double* values, std::int64_t count, double* into) {
  __shared__ double scratch[32];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += values[i];
  sum = block_reduce(sum, Sum{}, scratch);
  if (threadIdx.x == 0) *into += sum;
}

}  // namespace

void sum_chunks(const float* partial, std::int64_t chunks, std::int64_t stride, std::int64_t width, float* grad,
                bool accumulate) {
  launch("sum_chunks", sum_chunks_kernel, {.blocks = ceil_div(width, lanes), .threads = lanes * groups}, partial,
         chunks, stride, width, grad, accumulate);
}

std::int64_t column_chunks(std::int64_t rows, std::int64_t width, int element_size) {
  return ceil_div(rows, chunk_rows_of(rows, width, element_size));
}

template <class T>
void column_sums(Matrix<const T> from, float* partial) {
  const std::int64_t chunk_rows = chunk_rows_of(from.rows, from.width, sizeof(T));
  const auto run = [&](auto kernel, int n) {
    const int threads = threads_for(ceil_div(from.width, n), 256);
    launch("column_sums", kernel,
           {.blocks = ceil_div(ceil_div(from.width, n), threads),
            .threads = threads,
            .blocks_y = ceil_div(from.rows, chunk_rows)},
           from, chunk_rows, partial);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(from) ? run(column_sums_kernel<T, n>, n) : run(column_sums_kernel<T, 1>, 1);
}

void add_sum(const double* values, std::int64_t count, double* into) {
  launch("add_sum", add_sum_kernel, {.blocks = 1, .threads = 256}, values, count, into);
}

template void column_sums(Matrix<const float>, float*);
template void column_sums(Matrix<const c10::BFloat16>, float*);

}  // namespace trireme::kernels::cuda
