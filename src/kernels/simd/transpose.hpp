// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/simd/block_product.hpp"
#include "kernels/simd/lanes.hpp"
#include "kernels/simd/rows.hpp"

namespace trireme::kernels {

/// to[c][r] = from[r][c] for an 8x8 square, in registers.
template <class T>
inline void transpose_square(const T* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
  Eight a[8], b[8];
  for (int r = 0; r < 8; ++r) a[r] = load(from + r * from_stride, All{});
  for (int r = 0; r < 8; r += 2) {
    b[r] = __builtin_shufflevector(a[r], a[r + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    b[r + 1] = __builtin_shufflevector(a[r], a[r + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int r = 0; r < 8; r += 4) {
    for (int i = 0; i < 2; ++i) {
      a[r + i] = __builtin_shufflevector(b[r + i], b[r + i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      a[r + i + 2] = __builtin_shufflevector(b[r + i], b[r + i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    b[i] = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    b[i + 4] = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int c = 0; c < 8; ++c) store(to + c * to_stride, b[c], All{});
}

/// to[c][r] = from[r][c] in fp32, for a matrix of `rows` x `columns`.
template <class T>
void transpose_portable(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
                        std::int64_t to_stride) {
  const std::int64_t whole_rows = rows / 8 * 8;
  const std::int64_t whole_columns = columns / 8 * 8;
  for (std::int64_t r = 0; r < whole_rows; r += 8) {
    for (std::int64_t c = 0; c < whole_columns; c += 8) {
      transpose_square(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[c * to_stride + r] = get(from[r * from_stride + c]);
    }
  }
}

/// The same for numbers of rows and columns that are multiples of 16. Only where has_avx512.
void transpose_avx512(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
                      std::int64_t to_stride);
void transpose_avx512(const c10::BFloat16* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns,
                      float* to, std::int64_t to_stride);

/// The same, chosen by the CPU's instructions.
template <class T>
void transpose(const T* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
               std::int64_t to_stride) {
  const std::int64_t r = has_avx512 ? rows / 16 * 16 : 0, c = has_avx512 ? columns / 16 * 16 : 0;
  if (r > 0 && c > 0) transpose_avx512(from, from_stride, r, c, to, to_stride);
  transpose_portable(from + c, from_stride, r, columns - c, to + c * to_stride, to_stride);
  transpose_portable(from + r * from_stride, from_stride, rows - r, columns, to + r, to_stride);
}

}  // namespace trireme::kernels
