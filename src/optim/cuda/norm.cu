// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/block.cuh"
#include "optim/cuda/passes.hpp"

namespace trireme::optim::cuda {
namespace {

using namespace kernels::cuda;

constexpr std::int64_t chunk = std::int64_t{1} << 15;

/// One block a chunk. The square of an fp32 number is exact in fp64.
template <int n>
__global__ void squares_kernel(const float* values, std::int64_t elements, double* partial) {
  __shared__ double scratch[32];
  const std::int64_t begin = blockIdx.x * chunk;
  const std::int64_t end = begin + chunk < elements ? begin + chunk : elements;
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x * n; i < end; i += static_cast<std::int64_t>(blockDim.x) * n) {
    if (i + n <= end) {
      const auto x = load<n>(values + i);
      for (int k = 0; k < n; ++k) sum = fma(static_cast<double>(x.at[k]), static_cast<double>(x.at[k]), sum);
    } else {
      for (std::int64_t j = i; j < end; ++j)
        sum = fma(static_cast<double>(values[j]), static_cast<double>(values[j]), sum);
    }
  }
  sum = block_reduce(sum, Sum{}, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

std::int64_t square_chunks(std::int64_t elements) { return ceil_div(elements, chunk); }

void squares(const float* values, std::int64_t elements, double* partial) {
  const Grid grid{.blocks = square_chunks(elements), .threads = 256};
  if (fits<4>(values))
    launch("squares", squares_kernel<4>, grid, values, elements, partial);
  else
    launch("squares", squares_kernel<1>, grid, values, elements, partial);
}

}  // namespace trireme::optim::cuda
