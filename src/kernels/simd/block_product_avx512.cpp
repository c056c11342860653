// SPDX-License-Identifier: Apache-2.0
//
// Called only where the CPU has AVX-512. Templates stay in the unnamed namespace: of several equal instantiations with
// external linkage the linker keeps one, which might be this file's.
#include <immintrin.h>

#include <cstring>

#include "kernels/simd/block_product.hpp"
#include "trireme/base/ceil_div.hpp"

namespace trireme::kernels {
namespace {

// AVX512-BF16 is for Pairs alone: of the others' operations none needs it.
#define TRIREME_AVX512 __attribute__((target("avx512f,avx512bw,avx512bf16,fma,prefer-vector-width=512")))
#define TRIREME_AVX512_INLINE TRIREME_AVX512 [[gnu::always_inline]] inline

// Early, or sums are kept in memory where the last sixteen is masked.
#define TRIREME_UNROLL _Pragma("GCC unroll 8")

constexpr int most_rows = 6, most_sixteens = 4;  // 24 sums, 4 of B and 1 of A in 32 registers

/// Addresses of a tile of C and of its panels.
template <class T>
struct Tile {
  std::int64_t k;
  Panel<const T> a, b;
  Panel<float> c;
  Panel<const float> d;
  __mmask16 last;  ///< columns of the last sixteen that exist
  PartsOfTiles::Part interleaved;
};

// Elements are 32 bits in either case: moved as floats, multiplied as T.
TRIREME_AVX512_INLINE __m512 multiply_add(const float* /*type*/, __m512 a, __m512 b, __m512 sum) {
  return _mm512_fmadd_ps(a, b, sum);
}
TRIREME_AVX512_INLINE __m512 multiply_add(const Pair* /*type*/, __m512 a, __m512 b, __m512 sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
TRIREME_AVX512_INLINE __m512 broadcast(const void* from) {
  float element;
  std::memcpy(&element, from, sizeof element);
  return _mm512_set1_ps(element);
}

/// Row r, from two base addresses and multiples of the stride that an address can have.
template <class T>
TRIREME_AVX512_INLINE const T* row_of(const T* rows, std::int64_t stride, int r) {
  return r < 3 ? rows + r * stride : (rows + 3 * stride) + (r - 3) * stride;
}

/// Adds one term of k to a tile's sums. a: its elements, in rows of A with distance `a_stride`, or contiguous; b: its
/// row of B.
template <bool transposed, class T>
TRIREME_AVX512_INLINE void add_term(__m512 (&sums)[most_rows][most_sixteens], const T* a, std::int64_t a_stride,
                                    const T* b, const int height, const int width, const bool masked, __mmask16 last) {
  __m512 row[most_sixteens];
  TRIREME_UNROLL
  for (int v = 0; v < width; ++v)
    row[v] = masked && v == width - 1 ? _mm512_maskz_loadu_ps(last, b + 16 * v) : _mm512_loadu_ps(b + 16 * v);
  TRIREME_UNROLL
  for (int r = 0; r < height; ++r) {
    const __m512 x = broadcast(transposed ? a + r : row_of(a, a_stride, r));
    TRIREME_UNROLL
    for (int v = 0; v < width; ++v) sums[r][v] = multiply_add(a, x, row[v], sums[r][v]);
  }
}

TRIREME_AVX512_INLINE void copy(Copies::Line line) {
  __builtin_prefetch(line.next);
  _mm512_storeu_ps(line.to, _mm512_loadu_ps(line.from));
}

/// `height` rows and `width` sixteens of C, held in registers while k runs; the last sixteen is whole unless `masked`.
/// Inlined with constant sizes only.
template <bool transposed, class T>
TRIREME_AVX512_INLINE void tile(const Tile<T> t, const int height, const int width, const bool masked) {
  __m512 sums[most_rows][most_sixteens];
  TRIREME_UNROLL
  for (int r = 0; r < height; ++r) {
    TRIREME_UNROLL
    for (int v = 0; v < width; ++v) {
      const float* d = t.d.data + r * t.d.stride + 16 * v;
      sums[r][v] = t.d.data == nullptr        ? _mm512_setzero_ps()
                   : masked && v == width - 1 ? _mm512_maskz_loadu_ps(t.last, d)
                                              : _mm512_loadu_ps(d);
    }
  }
  // A whole tile's terms go in groups, and with each the next cache line of one row of A after the other.
  const bool whole = !masked && height == most_rows && width == most_sixteens;
  const int group = whole ? 8 : 1;
  constexpr auto line = static_cast<std::int64_t>(cache_line / sizeof(T));
  const std::int64_t groups = t.k / group;
  const T *a = t.a.data, *b = t.b.data;
  const PartsOfTiles::Part& beside = t.interleaved;
  const void* const* ahead = beside.prefetches.data();
  Share prefetches(std::ssize(beside.prefetches), groups), copies(beside.lines, groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    for (prefetches.begin_part(); prefetches.due();) __builtin_prefetch(*ahead++, 0, 2);
    for (copies.begin_part(); copies.due();) copy(beside.copies->next());
    TRIREME_UNROLL
    for (int u = 0; u < group; ++u) {
      if (whole && !transposed && u < height) __builtin_prefetch(row_of(a, t.a.stride, u) + line);
      add_term<transposed>(sums, a + (transposed ? 0 : u), t.a.stride, b, height, width, masked, t.last);
      b += t.b.stride;
      if (transposed) a += t.a.stride;
    }
    if (!transposed) a += group;
    asm("" : "+r"(a), "+r"(b));  // or the compiler keeps a pointer to each row of A
  }
  if (groups == 0) {
    for (copies.begin_part(); copies.due();) copy(beside.copies->next());
  }
  for (std::int64_t p = groups * group; p < t.k; ++p) {
    add_term<transposed>(sums, a, t.a.stride, b, height, width, masked, t.last);
    b += t.b.stride;
    a += transposed ? t.a.stride : 1;
  }
  TRIREME_UNROLL
  for (int r = 0; r < height; ++r) {
    TRIREME_UNROLL
    for (int v = 0; v < width; ++v) {
      float* c = t.c.data + r * t.c.stride + 16 * v;
      if (masked && v == width - 1) {
        _mm512_mask_storeu_ps(c, t.last, sums[r][v]);
      } else {
        _mm512_storeu_ps(c, sums[r][v]);
      }
    }
  }
}

template <bool transposed, class T>
TRIREME_AVX512_INLINE void tile_of_width(const Tile<T>& t, const int height, int width) {
  if (t.last == 0xffff && width == most_sixteens) return tile<transposed>(t, height, most_sixteens, false);
  switch (width) {
    case 1: return tile<transposed>(t, height, 1, true);
    case 2: return tile<transposed>(t, height, 2, true);
    case 3: return tile<transposed>(t, height, 3, true);
    default: return tile<transposed>(t, height, 4, true);
  }
}

template <bool transposed, class T>
TRIREME_AVX512 void any_tile(const Tile<T>& t, int height, int width) {
  switch (height) {
    case 1: return tile_of_width<transposed>(t, 1, width);
    case 2: return tile_of_width<transposed>(t, 2, width);
    case 3: return tile_of_width<transposed>(t, 3, width);
    case 4: return tile_of_width<transposed>(t, 4, width);
    case 5: return tile_of_width<transposed>(t, 5, width);
    default: return tile_of_width<transposed>(t, 6, width);
  }
}

template <bool transposed, class T>
void product(ProductSizes s, Panel<const T> a, Panel<const T> b, Panel<float> c, Panel<const float> d,
             Interleaved* interleaved) {
  const std::int64_t tiles = ceil_div(s.n, panel_width) * ceil_div(s.m, most_rows);
  PartsOfTiles parts(interleaved, tiles);
  for (std::int64_t j = 0; j < s.n; j += panel_width) {
    const std::int64_t columns = s.n - j < panel_width ? s.n - j : panel_width;
    const auto last = static_cast<__mmask16>(0xffff >> (15 - (columns - 1) % 16));
    for (std::int64_t i = 0; i < s.m; i += most_rows) {
      const auto height = static_cast<int>(s.m - i < most_rows ? s.m - i : most_rows);
      any_tile<transposed, T>({.k = s.k,
                               .a = {a.data + (transposed ? i : i * a.stride), a.stride},
                               .b = {b.data + j, b.stride},
                               .c = {c.data + i * c.stride + j, c.stride},
                               .d = {d.data == nullptr ? nullptr : d.data + i * d.stride + j, d.stride},
                               .last = last,
                               .interleaved = parts.next()},
                              height, static_cast<int>((columns + 15) / 16));
    }
  }
}

}  // namespace

void block_product_avx512(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                          Panel<const float> d, Interleaved* interleaved) {
  product<false>(sizes, a, b, c, d, interleaved);
}
void block_product_avx512(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c,
                          Panel<const float> d, Interleaved* interleaved) {
  product<false>(sizes, a, b, c, d, interleaved);
}
void block_product_transposed_avx512(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                                     Panel<const float> d, Interleaved* interleaved) {
  product<true>(sizes, a, b, c, d, interleaved);
}
void block_product_transposed_avx512(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c,
                                     Panel<const float> d, Interleaved* interleaved) {
  product<true>(sizes, a, b, c, d, interleaved);
}

TRIREME_AVX512 void narrow_to_pairs(Panel<float> rows, std::int64_t m, std::int64_t n) {
  for (std::int64_t r = 0; r < m; ++r) {
    float* row = rows.data + r * rows.stride;
    for (std::int64_t i = 0; i < n; i += 16) {
      const __m256bh halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(row + i));
      std::memcpy(row + i / 2, &halves, sizeof halves);
    }
  }
}

}  // namespace trireme::kernels
