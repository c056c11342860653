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

/// Up to six rows of Width eights.
template <int Width>
void rows_of_tile(std::int64_t height, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                  std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  constexpr decltype(&tile<1, Width>) by_height[] = {tile<1, Width>, tile<2, Width>, tile<3, Width>,
                                                     tile<4, Width>, tile<5, Width>, tile<6, Width>};
  by_height[height - 1](k, a, a_stride, b, b_stride, c, c_stride, add);
}

/// Width eights of C's columns, all rows: six rows at a time, then those left.
template <int Width>
void columns(std::int64_t m, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
             std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  for (std::int64_t i = 0; i < m; i += 6)
    rows_of_tile<Width>(std::min<std::int64_t>(6, m - i), k, a + i * a_stride, a_stride, b, b_stride, c + i * c_stride,
                        c_stride, add);
}

/// Fewer than eight columns: B's are copied, with zeros beside them, so that whole tiles multiply them.
void last_columns(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride, const float* b,
                  std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  constexpr std::int64_t depth = 256;
  float panel[depth * 8], part[6 * 8];
  std::int64_t from = 0;
  do {
    const std::int64_t here = std::min(depth, k - from);
    for (std::int64_t p = 0; p < here; ++p) store(panel + 8 * p, load(b + (from + p) * b_stride, First{n}), All{});
    for (std::int64_t i = 0; i < m; i += 6) {
      const std::int64_t height = std::min<std::int64_t>(6, m - i);
      for (std::int64_t r = 0; r < height && add; ++r)
        store(part + 8 * r, load(c + (i + r) * c_stride, First{n}), All{});
      rows_of_tile<1>(height, here, a + i * a_stride + from, a_stride, panel, 8, part, 8, add);
      for (std::int64_t r = 0; r < height; ++r) store(c + (i + r) * c_stride, load(part + 8 * r, All{}), First{n});
    }
    from += here;
    add = true;
  } while (from < k);
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
