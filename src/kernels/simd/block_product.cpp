// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/block_product.hpp"

#include <algorithm>

#include "kernels/simd/lanes.hpp"

namespace trireme::kernels {
namespace {

/// A tile of C of Height rows and Width eights, held in registers while k runs.
template <int Height, int Width>
void tile(std::int64_t k, const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float* c,
          std::int64_t c_stride, bool add) {
  Eight sums[Height][Width];
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v) sums[r][v] = add ? load(c + r * c_stride + 8 * v, All{}) : Eight{};
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Eight row[Width];
    for (int v = 0; v < Width; ++v) row[v] = load(b + p * b_stride + 8 * v, All{});
    for (int r = 0; r < Height; ++r) {
      const Eight x = eight(a[r * a_stride + p]);
      for (int v = 0; v < Width; ++v) sums[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v) store(c + r * c_stride + 8 * v, sums[r][v], All{});
  }
}

/// Width eights of C's columns, all rows: six rows at a time, then those left.
template <int Width>
void columns(std::int64_t m, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
             std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  constexpr decltype(&tile<1, Width>) by_height[] = {tile<1, Width>, tile<2, Width>, tile<3, Width>,
                                                     tile<4, Width>, tile<5, Width>, tile<6, Width>};
  for (std::int64_t i = 0; i < m; i += 6) {
    by_height[std::min<std::int64_t>(6, m - i) - 1](k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride,
                                                    c_stride, add);
  }
}

/// Fewer than eight columns.
void last_columns(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                  std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  for (std::int64_t i = 0; i < m; ++i) {
    Eight sums = add ? load(c + i * c_stride, First{n}) : Eight{};
    for (std::int64_t p = 0; p < k; ++p) sums += a[i * a_stride + p] * load(b + p * b_stride, First{n});
    store(c + i * c_stride, sums, First{n});
  }
}

using Product = decltype(&block_product);
const Product fastest_here = __builtin_cpu_supports("avx512f") ? block_product_avx512 : block_product_portable;

}  // namespace

void block_product_portable(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                            const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  std::int64_t j = 0;
  for (; j + 16 <= n; j += 16) columns<2>(m, k, a, a_stride, b + j, b_stride, c + j, c_stride, add);
  for (; j + 8 <= n; j += 8) columns<1>(m, k, a, a_stride, b + j, b_stride, c + j, c_stride, add);
  if (j < n) last_columns(m, n - j, k, a, a_stride, b + j, b_stride, c + j, c_stride, add);
}

void block_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                   const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  fastest_here(m, n, k, a, a_stride, b, b_stride, c, c_stride, add);
}

}  // namespace trireme::kernels
