// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace trireme::kernels {

/// The width that keeps block_product at full speed: n a multiple of it, and B's rows that far apart.
inline constexpr std::int64_t panel_width = 64;

/// Two neighbours along k: what the bf16 products of CPUs multiply and add at once.
struct Pair {
  c10::BFloat16 even, odd;
};

/// A row-major matrix: distance between rows in elements.
template <class T>
struct Panel {
  T* data;
  std::int64_t stride;
};
struct ProductSizes {
  std::int64_t m, n, k;
};

/// C = A B, or C += A B: the small product under the blocked algorithms, on the calling thread. A: [m, k], B: [k, n],
/// C: [m, n] in fp32. Each element of C is summed in the order of k, by fused multiply-adds where the CPU has them,
/// whatever the sizes. B should stay in the second-level cache (64 KiB to 256 KiB).
///
/// Of Pairs: k counts pairs, a row of B is a pair of rows, sums are fp32 (VDPBF16PS: subnormal numbers count as zero).
/// Only where has_pair_products.
template <class T>
using BlockProduct = void(ProductSizes sizes, Panel<const T> a, Panel<const T> b, Panel<float> c, bool add);

BlockProduct<float> block_product;
BlockProduct<Pair> block_product;
/// The same with A^T in A's place: A: [k, m].
BlockProduct<float> block_product_transposed;
BlockProduct<Pair> block_product_transposed;

/// Whether this CPU multiplies pairs (AVX512-BF16).
extern const bool has_pair_products;
/// Whether products of bf16 are to be those of pairs: GemmChoice::pairs, where the CPU has them.
[[nodiscard]] bool multiplies_pairs();

/// Turns the first n floats of each of m rows into n / 2 pairs, in place, to nearest, ties to even. n: a multiple
/// of 16. Only where has_pair_products.
void narrow_to_pairs(Panel<float> rows, std::int64_t m, std::int64_t n);

// The versions that the functions above choose from.
BlockProduct<float> block_product_portable, block_product_transposed_portable;  ///< for any CPU
BlockProduct<float> block_product_avx512, block_product_transposed_avx512;      ///< AVX-512 (F and BW)
BlockProduct<Pair> block_product_avx512, block_product_transposed_avx512;       ///< has_pair_products

}  // namespace trireme::kernels
