// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/simd/pairs.hpp"
#include "kernels/simd/rows.hpp"

/// Copies of parts of matrices in the order that block_product reads.
namespace trireme::kernels {

template <class From, class To>
void copy_row(const From* from, To* to, std::int64_t n) {
  in_eights(n, [=](std::int64_t i, auto lanes) { store(to + i, load(from + i, lanes), lanes); });
}

/// Asks for a row that is needed soon: rows are pages apart, where the CPU does not look ahead.
template <class T>
void prefetch_row(const T* row, std::int64_t width) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < width; i += line) __builtin_prefetch(row + i);
}
inline constexpr std::int64_t rows_ahead = 8;

/// A part of a matrix: `rows` rows from `row` on, `width` columns from `begin` on.
struct Part {
  std::int64_t row, rows, begin, width;
};

/// The part row by row: to[k][j] = from[row + k][begin + j], or its pairs of rows, an odd last one with zeros.
template <class T>
void pack(Rows<const T> from, Part part, Panel<float> to) {
  for (std::int64_t r = 0; r < part.rows; ++r) {
    const T* row = from[part.row + r] + part.begin;
    prefetch_row(row + rows_ahead * from.stride, part.width);
    copy_row(row, to.data + r * to.stride, part.width);
  }
}
inline void pack(Rows<const c10::BFloat16> from, Part part, Panel<Pair> to) {
  for (std::int64_t r = 0; r + 1 < part.rows; r += 2) {
    const c10::BFloat16* even = from[part.row + r] + part.begin;
    const c10::BFloat16* odd = even + from.stride;
    prefetch_row(even + rows_ahead * from.stride, part.width);
    prefetch_row(odd + rows_ahead * from.stride, part.width);
    interleave(even, odd, to.data + r / 2 * to.stride, part.width);
  }
  if (part.rows % 2 == 0) return;
  interleave_zeros(from[part.row + part.rows - 1] + part.begin, to.data + part.rows / 2 * to.stride, part.width);
}

}  // namespace trireme::kernels
