// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/block_product.hpp"

#include <algorithm>

#include "kernels/simd/lanes.hpp"

namespace trireme::kernels {
namespace {

/// A, or A^T: element (r, p) is at[r * row + p * column]; one of the distances is 1.
struct Left {
  const float* at;
  std::int64_t row, column;

  [[nodiscard]] Left from(std::int64_t r, std::int64_t p) const {
    return {.at = at + r * row + p * column, .row = row, .column = column};
  }
};

/// A tile of C of Height rows and Width eights, held in registers while k runs.
template <int Height, int Width>
void tile(std::int64_t k, Left a, const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  Eight sums[Height][Width];
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v) sums[r][v] = add ? load(c + r * c_stride + 8 * v, All{}) : Eight{};
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Eight row[Width];
    for (int v = 0; v < Width; ++v) row[v] = load(b + p * b_stride + 8 * v, All{});
    for (int r = 0; r < Height; ++r) {
      const Eight x = eight(a.at[r * a.row + p * a.column]);
      for (int v = 0; v < Width; ++v) sums[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v) store(c + r * c_stride + 8 * v, sums[r][v], All{});
  }
}

/// Up to six rows of Width eights.
template <int Width>
void rows_of_tile(std::int64_t height, std::int64_t k, Left a, const float* b, std::int64_t b_stride, float* c,
                  std::int64_t c_stride, bool add) {
  constexpr decltype(&tile<1, Width>) by_height[] = {tile<1, Width>, tile<2, Width>, tile<3, Width>,
                                                     tile<4, Width>, tile<5, Width>, tile<6, Width>};
  by_height[height - 1](k, a, b, b_stride, c, c_stride, add);
}

/// Width eights of C's columns, all rows: six rows at a time, then those left.
template <int Width>
void columns(std::int64_t m, std::int64_t k, Left a, const float* b, std::int64_t b_stride, float* c,
             std::int64_t c_stride, bool add) {
  for (std::int64_t i = 0; i < m; i += 6)
    rows_of_tile<Width>(std::min<std::int64_t>(6, m - i), k, a.from(i, 0), b, b_stride, c + i * c_stride, c_stride,
                        add);
}

/// Fewer than eight columns: B's are copied, with zeros beside them, so that whole tiles multiply them.
void last_columns(std::int64_t m, std::int64_t n, std::int64_t k, Left a, const float* b, std::int64_t b_stride,
                  float* c, std::int64_t c_stride, bool add) {
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
      rows_of_tile<1>(height, here, a.from(i, from), panel, 8, part, 8, add);
      for (std::int64_t r = 0; r < height; ++r) store(c + (i + r) * c_stride, load(part + 8 * r, All{}), First{n});
    }
    from += here;
    add = true;
  } while (from < k);
}

void product(ProductSizes s, Left a, Panel<const float> b, Panel<float> c, bool add) {
  std::int64_t j = 0;
  for (; j + 16 <= s.n; j += 16) columns<2>(s.m, s.k, a, b.data + j, b.stride, c.data + j, c.stride, add);
  for (; j + 8 <= s.n; j += 8) columns<1>(s.m, s.k, a, b.data + j, b.stride, c.data + j, c.stride, add);
  if (j < s.n) last_columns(s.m, s.n - j, s.k, a, b.data + j, b.stride, c.data + j, c.stride, add);
}

const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");

}  // namespace

const bool has_pair_products = has_avx512 && __builtin_cpu_supports("avx512bf16");

void block_product_portable(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c, bool add) {
  product(sizes, {.at = a.data, .row = a.stride, .column = 1}, b, c, add);
}
void block_product_transposed_portable(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                                       bool add) {
  product(sizes, {.at = a.data, .row = 1, .column = a.stride}, b, c, add);
}

void block_product(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c, bool add) {
  has_avx512 ? block_product_avx512(sizes, a, b, c, add) : block_product_portable(sizes, a, b, c, add);
}
void block_product_transposed(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                              bool add) {
  has_avx512 ? block_product_transposed_avx512(sizes, a, b, c, add)
             : block_product_transposed_portable(sizes, a, b, c, add);
}
void block_product(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c, bool add) {
  block_product_avx512(sizes, a, b, c, add);
}
void block_product_transposed(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c, bool add) {
  block_product_transposed_avx512(sizes, a, b, c, add);
}

}  // namespace trireme::kernels
