// SPDX-License-Identifier: Apache-2.0
//
// Called only where the CPU has AVX-512.
#include <cstring>

#include "kernels/simd/transpose.hpp"

namespace trireme::kernels {
namespace {

#define TRIREME_AVX512 __attribute__((target("avx512f,avx512bw,prefer-vector-width=512")))
#define TRIREME_AVX512_INLINE TRIREME_AVX512 [[gnu::always_inline]] inline
#define TRIREME_UNROLL _Pragma("GCC unroll 16")

using Sixteen = float __attribute__((vector_size(64)));
using SixteenBits = std::uint32_t __attribute__((vector_size(64)));
using SixteenHalves = std::uint16_t __attribute__((vector_size(32)));

TRIREME_AVX512_INLINE Sixteen load(const float* from) {
  Sixteen x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
TRIREME_AVX512_INLINE Sixteen load(const c10::BFloat16* from) {
  SixteenHalves x;
  std::memcpy(&x, from, sizeof x);
  return reinterpret_cast<Sixteen>(__builtin_convertvector(x, SixteenBits) << 16);
}

// From every quarter (four floats) of a and b: the first or last two, alternating; the first or last pair of both.
TRIREME_AVX512_INLINE Sixteen first_of_quarters(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
}
TRIREME_AVX512_INLINE Sixteen last_of_quarters(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
TRIREME_AVX512_INLINE Sixteen first_pairs(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
}
TRIREME_AVX512_INLINE Sixteen last_pairs(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
// Quarters 0 and 2, or 1 and 3, of a, then of b.
TRIREME_AVX512_INLINE Sixteen even_quarters(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
TRIREME_AVX512_INLINE Sixteen odd_quarters(Sixteen a, Sixteen b) {
  return __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
TRIREME_AVX512_INLINE void store(float* to, Sixteen x) { std::memcpy(to, &x, sizeof x); }

/// A 16x16 square, in registers: within quarters first, then quarters among each other.
template <class T>
TRIREME_AVX512_INLINE void square(const T* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
  Sixteen a[16], b[16];
  TRIREME_UNROLL
  for (int r = 0; r < 16; ++r) a[r] = load(from + r * from_stride);
  TRIREME_UNROLL
  for (int r = 0; r < 16; r += 2) {
    b[r] = first_of_quarters(a[r], a[r + 1]);
    b[r + 1] = last_of_quarters(a[r], a[r + 1]);
  }
  // Quarter q of a[4 g + c]: column 4 q + c of rows 4 g to 4 g + 3.
  TRIREME_UNROLL
  for (int r = 0; r < 16; r += 4) {
    a[r] = first_pairs(b[r], b[r + 2]);
    a[r + 1] = last_pairs(b[r], b[r + 2]);
    a[r + 2] = first_pairs(b[r + 1], b[r + 3]);
    a[r + 3] = last_pairs(b[r + 1], b[r + 3]);
  }
  TRIREME_UNROLL
  for (int c = 0; c < 4; ++c) {
    const Sixteen even = even_quarters(a[c], a[c + 4]), even_below = even_quarters(a[c + 8], a[c + 12]);
    const Sixteen odd = odd_quarters(a[c], a[c + 4]), odd_below = odd_quarters(a[c + 8], a[c + 12]);
    store(to + c * to_stride, even_quarters(even, even_below));
    store(to + (c + 4) * to_stride, even_quarters(odd, odd_below));
    store(to + (c + 8) * to_stride, odd_quarters(even, even_below));
    store(to + (c + 12) * to_stride, odd_quarters(odd, odd_below));
  }
}

template <class T>
TRIREME_AVX512 void squares(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
                            std::int64_t to_stride) {
  for (std::int64_t c = 0; c < columns; c += 16)
    for (std::int64_t r = 0; r < rows; r += 16)
      square(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
}

}  // namespace

void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
                      std::int64_t to_stride) {
  squares(from, from_stride, rows, columns, to, to_stride);
}
void transpose_avx512(const c10::BFloat16* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                      float* to, std::int64_t to_stride) {
  squares(from, from_stride, rows, columns, to, to_stride);
}

}  // namespace trireme::kernels
