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

/// Row k of a part: of floats a row, of pairs two.
template <class T>
void pack_row(Rows<const T> from, Part part, std::int64_t k, float* to) {
  const T* row = from[part.row + k] + part.begin;
  prefetch_row(row + rows_ahead * from.stride, part.width);
  copy_row(row, to, part.width);
}
inline void pack_row(Rows<const c10::BFloat16> from, Part part, std::int64_t k, Pair* to) {
  const c10::BFloat16* even = from[part.row + 2 * k] + part.begin;
  if (2 * k + 1 == part.rows) return interleave_zeros(even, to, part.width);
  const c10::BFloat16* odd = even + from.stride;
  prefetch_row(even + rows_ahead * from.stride, part.width);
  prefetch_row(odd + rows_ahead * from.stride, part.width);
  interleave(even, odd, to, part.width);
}

/// The part row by row: element j of row k at to[k * stride + j].
template <class Element, class T>
void pack(Rows<const T> from, Part part, Panel<Element> to) {
  const std::int64_t terms = terms_of<Element>(part.rows);
  for (std::int64_t k = 0; k < terms; ++k) pack_row(from, part, k, to.data + k * to.stride);
}

}  // namespace trireme::kernels
