// SPDX-License-Identifier: Apache-2.0
//
// Called only where the CPU has AVX-512. No templates: the linker keeps one of several equal instantiations, which
// might be this file's.
#include <cstring>

#include "kernels/simd/block_product.hpp"

namespace trireme::kernels {
namespace {

#define TRIREME_AVX512 __attribute__((target("avx512f,fma,prefer-vector-width=512")))

using Sixteen = float __attribute__((vector_size(64)));
constexpr int most_rows = 6, most_sixteens = 4;  // 24 sums, 4 of B and 1 of A in 32 registers

/// Where a tile of C and the panels it comes from lie.
struct Tile {
  std::int64_t k;
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  float* c;
  std::int64_t c_stride;
  bool add;
};

/// `height` rows and `width` sixteens of C, held in registers while k runs. Inlined with constant sizes only.
TRIREME_AVX512 [[gnu::always_inline]] inline void tile(const Tile& t, const int height, const int width) {
  Sixteen sums[most_rows][most_sixteens];
  for (int r = 0; r < height; ++r) {
    for (int v = 0; v < width; ++v) {
      sums[r][v] = Sixteen{};
      if (t.add) std::memcpy(&sums[r][v], t.c + r * t.c_stride + 16 * v, sizeof(Sixteen));
    }
  }
  // The next tile's part of C: in a weight gradient it comes from memory, and k is long enough to fetch it.
  for (int r = 0; r < height && t.add; ++r) {
    for (int v = 0; v < width; ++v) __builtin_prefetch(t.c + (height + r) * t.c_stride + 16 * v, 1);
  }
  for (std::int64_t p = 0; p < t.k; ++p) {
    Sixteen row[most_sixteens];
    for (int v = 0; v < width; ++v) std::memcpy(&row[v], t.b + p * t.b_stride + 16 * v, sizeof(Sixteen));
    for (int r = 0; r < height; ++r) {
      const Sixteen x = t.a[r * t.a_stride + p] - Sixteen{};  // a broadcast; adding zero would be an addition
      for (int v = 0; v < width; ++v) sums[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < height; ++r) {
    for (int v = 0; v < width; ++v) std::memcpy(t.c + r * t.c_stride + 16 * v, &sums[r][v], sizeof(Sixteen));
  }
}

TRIREME_AVX512 [[gnu::always_inline]] inline void tile_of_width(const Tile& t, const int height, int width) {
  switch (width) {
    case 1: return tile(t, height, 1);
    case 2: return tile(t, height, 2);
    case 3: return tile(t, height, 3);
    default: return tile(t, height, 4);
  }
}

TRIREME_AVX512 void any_tile(const Tile& t, int height, int width) {
  switch (height) {
    case 1: return tile_of_width(t, 1, width);
    case 2: return tile_of_width(t, 2, width);
    case 3: return tile_of_width(t, 3, width);
    case 4: return tile_of_width(t, 4, width);
    case 5: return tile_of_width(t, 5, width);
    default: return tile_of_width(t, 6, width);
  }
}

}  // namespace

void block_product_avx512(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t a_stride,
                          const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride, bool add) {
  std::int64_t j = 0;
  while (j + 16 <= n) {
    const auto width = static_cast<int>(n - j >= 64 ? 4 : (n - j) / 16);
    for (std::int64_t i = 0; i < m; i += most_rows) {
      const auto height = static_cast<int>(m - i >= most_rows ? most_rows : m - i);
      any_tile({k, a + i * a_stride, a_stride, b + j, b_stride, c + i * c_stride + j, c_stride, add}, height, width);
    }
    j += 16 * width;
  }
  if (j < n) block_product_portable(m, n - j, k, a, a_stride, b + j, b_stride, c + j, c_stride, add);
}

}  // namespace trireme::kernels
