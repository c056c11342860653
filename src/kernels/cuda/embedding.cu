// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/launchers.hpp"

namespace trireme::kernels::cuda {
namespace {

constexpr const char* outside = "embedding: a token id is outside the vocabulary";

template <class T>
struct Gather {
  const std::int32_t* ids;
  std::int64_t first;
  bool part;
  Matrix<const T> table;
  Matrix<T> out;
  template <int n>
  __device__ void run(std::int64_t row, std::int64_t i) const {
    const std::int64_t id = ids[row] - first;
    const bool here = id >= 0 && id < table.rows;
    expect(here || part, outside);
    Pack<T, n> value{};
    if (here) value = load<n>(table.data + id * table.stride + i);
    store<n>(out.data + row * out.stride + i, value);
  }
};

/// blockIdx.x: a place in the sorted ids; the first of each id adds all rows of it, in order. blockIdx.y: columns.
template <class T, int n>
__global__ void scatter_kernel(const std::int32_t* sorted, const std::int64_t* position, std::int64_t first, bool part,
                               Matrix<const T> d_out, Matrix<float> grad) {
  const std::int64_t begin = blockIdx.x;
  const std::int32_t id = sorted[begin];
  if (begin > 0 && sorted[begin - 1] == id) return;
  const std::int64_t row = id - first;
  const bool here = row >= 0 && row < grad.rows;
  expect(here || part, outside);
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * n;
  if (!here || i >= grad.width) return;
  float* to = grad.data + row * grad.stride + i;
  float sums[n];
  for (int k = 0; k < n; ++k) sums[k] = to[k];
  for (std::int64_t p = begin; p < d_out.rows && sorted[p] == id; ++p) {
    const auto x = load<n>(d_out.data + position[p] * d_out.stride + i);
    for (int k = 0; k < n; ++k) sums[k] += static_cast<float>(x.at[k]);
  }
  for (int k = 0; k < n; ++k) to[k] = sums[k];
}

}  // namespace

template <class T>
void embedding_gather(const std::int32_t* ids, std::int64_t first, bool part, Matrix<const T> table, Matrix<T> out) {
  constexpr int n = whole_pack<T>;
  const Gather<T> body{ids, first, part, table, out};
  fits<n>(table) && fits<n>(out) ? for_each_pack<n>("embedding_gather", out.rows, out.width, body)
                                 : for_each_pack<1>("embedding_gather", out.rows, out.width, body);
}

template <class T>
void embedding_scatter_add(const std::int32_t* sorted, const std::int64_t* position, std::int64_t first, bool part,
                           Matrix<const T> d_out, Matrix<float> grad) {
  const auto run = [&](auto kernel, int n) {
    const std::int64_t packs = ceil_div(grad.width, n);
    const int threads = threads_for(packs, 256);
    launch("embedding_scatter_add", kernel,
           {.blocks = d_out.rows, .threads = threads, .blocks_y = ceil_div(packs, threads)}, sorted, position, first,
           part, d_out, grad);
  };
  constexpr int n = whole_pack<T>;
  fits<n>(d_out) ? run(scatter_kernel<T, n>, n) : run(scatter_kernel<T, 1>, 1);
}

template void embedding_gather(const std::int32_t*, std::int64_t, bool, Matrix<const float>, Matrix<float>);
template void embedding_scatter_add(const std::int32_t*, const std::int64_t*, std::int64_t, bool, Matrix<const float>,
                                    Matrix<float>);
template void embedding_gather(const std::int32_t*, std::int64_t, bool, Matrix<const c10::BFloat16>,
                               Matrix<c10::BFloat16>);
template void embedding_scatter_add(const std::int32_t*, const std::int64_t*, std::int64_t, bool,
                                    Matrix<const c10::BFloat16>, Matrix<float>);

}  // namespace trireme::kernels::cuda
