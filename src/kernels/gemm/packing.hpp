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

/// A part of a matrix: `rows` rows from `row` on, `width` columns from `begin` on.
struct Part {
  std::int64_t row, rows, begin, width;
};

/// Row k of a part: of floats a row, of pairs two.
template <class T>
void pack_row(Rows<const T> from, Part part, std::int64_t k, float* to) {
  copy_row(from[part.row + k] + part.begin, to, part.width);
}
inline void pack_row(Rows<const c10::BFloat16> from, Part part, std::int64_t k, Pair* to) {
  const c10::BFloat16* even = from[part.row + 2 * k] + part.begin;
  if (2 * k + 1 == part.rows) return interleave_zeros(even, to, part.width);
  interleave(even, even + from.stride, to, part.width);
}

}  // namespace trireme::kernels
