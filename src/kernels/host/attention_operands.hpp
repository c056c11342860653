// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/host/attention_head.hpp"
#include "kernels/simd/pairs.hpp"
#include "kernels/simd/transpose.hpp"
#include "trireme/base/streaming.hpp"

/// Heads as operands of block_product. Numbers of rows are whole query blocks or vectors, those of a head_dim in pairs
/// even.
namespace trireme::kernels {

/// Calls body(Pair{}) where the head's products are those of bf16 pairs, otherwise body(float{}).
template <class T, class Body>
void with_element(const AttentionShape& s, const Body& body) {
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    if (multiplies_pairs() && s.head_dim % 2 == 0 && s.value_width() % 2 == 0) return body(Pair{});
  }
  body(float{});
}

/// Prefetches a row of a head some rows ahead: hardware prefetchers miss the stride. write: it will be written.
template <bool write = false, class T>
void prefetch_row(Head<T> head, std::int64_t t) {
  constexpr std::int64_t ahead = 8;
  constexpr auto line = static_cast<std::int64_t>(cache_line / sizeof(T));
  const auto* const row = head.data + std::min(t + ahead, head.count - 1) * head.stride;
  for (std::int64_t d = 0; d < head.width; d += line) __builtin_prefetch(row + d, write ? 1 : 0);
}

/// Copies a head to [padded, terms of its width], zeros after its rows: a left operand along its width.
template <class T>
void pack_rows(Head<T> head, float* to) {
  const std::int64_t width = head.width;
  for (std::int64_t t = 0; t < head.count; ++t) {
    prefetch_row(head, t);
    for (std::int64_t d = 0; d < width; ++d) to[t * width + d] = get(head.data[t * head.stride + d]);
  }
  std::fill(to + head.count * width, to + padded(head.count) * width, 0.0F);
}
inline void pack_rows(Head<const c10::BFloat16> head, Pair* to) {
  const auto bytes = static_cast<std::size_t>(head.width) * sizeof(c10::BFloat16);
  const std::int64_t width = head.width / 2;
  for (std::int64_t t = 0; t < head.count; ++t) {
    prefetch_row(head, t);
    std::memcpy(static_cast<void*>(to + t * width), head.data + t * head.stride, bytes);
  }
  std::fill(to + head.count * width, to + padded(head.count) * width, Pair{0, 0});
}

/// Copies a head to [terms of padded, its width], zeros after its rows: a right operand along its rows.
template <class T>
void pack_terms(Head<T> head, float* to) {
  pack_rows(head, to);
}
inline void pack_terms(Head<const c10::BFloat16> head, Pair* to) {
  const std::int64_t pairs = head.count / 2, width = head.width;
  for (std::int64_t t = 0; t < pairs; ++t) {
    const c10::BFloat16* even = head.data + 2 * t * head.stride;
    interleave(even, even + head.stride, to + t * width, width);
  }
  if (head.count % 2 != 0) interleave_zeros(head.data + 2 * pairs * head.stride, to + pairs * width, width);
  std::fill(to + terms_of<Pair>(head.count) * width, to + padded(head.count) / 2 * width, Pair{0, 0});
}

/// to[k][r] = from[r][k] for `rows` rows of `terms` elements: a right operand along its width.
inline void transpose_block(const float* from, std::int64_t rows, std::int64_t terms, float* to, std::int64_t stride) {
  transpose(from, terms, rows, terms, to, stride);
}
inline void transpose_block(const Pair* from, std::int64_t rows, std::int64_t terms, Pair* to, std::int64_t stride) {
  const std::int64_t whole = terms / 8 * 8;
  // Moved as floats, eight a time, which leaves their bits alone.
  transpose(reinterpret_cast<const float*>(from), terms, rows, whole, reinterpret_cast<float*>(to), stride);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = whole; k < terms; ++k) to[k * stride + r] = from[r * terms + k];
  }
}

/// The first n of each of m rows as elements, in place: a left operand along its columns.
template <class Element>
const Element* as_elements(float* rows, std::int64_t stride, std::int64_t m, std::int64_t n) {
  if constexpr (std::is_same_v<Element, Pair>) {
    narrow_to_pairs({rows, stride}, m, n);
    return reinterpret_cast<const Pair*>(rows);
  } else {
    return rows;
  }
}

/// Rows of as_elements, `width` numbers each, as a transposed left operand along them: the rows, or pairs of them in
/// `to`, with the same stride.
inline const float* along_rows(const float* rows, std::int64_t /*stride*/, std::int64_t /*m*/, std::int64_t /*width*/,
                               float* /*to*/) {
  return rows;
}
inline const Pair* along_rows(const Pair* rows, std::int64_t stride, std::int64_t m, std::int64_t width, Pair* to) {
  for (std::int64_t r = 0; r < m; r += 2) {
    const auto* even = reinterpret_cast<const c10::BFloat16*>(rows + r * stride);
    interleave(even, even + 2 * stride, to + r / 2 * stride, width);
  }
  return to;
}

}  // namespace trireme::kernels
