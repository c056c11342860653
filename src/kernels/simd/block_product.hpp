// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/BFloat16.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "trireme/base/ceil_div.hpp"
#include "trireme/base/streaming.hpp"

namespace trireme::kernels {

/// The width for full speed of block_product: n and the stride of B's rows should be multiples of it.
inline constexpr std::int64_t panel_width = 64;

/// Two neighbours along k: the operand of the CPUs' bf16 products.
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

/// Cache lines to prefetch during a product, spread over its multiply-adds: a burst of them would fill the CPU's line
/// fill buffers (16 on Intel's), and loads of the product would wait. Prefetches into the second-level cache: rows at a
/// distance of a power of two would evict each other from the first. Lines beyond `most` are skipped.
class Lines {
 public:
  /// `count` lines, `stride` bytes apart.
  void add(const void* begin, std::int64_t stride, std::int64_t count) {
    const void** const to = at_.data() + count_;
    const std::int64_t n = count < most - count_ ? count : most - count_;
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<const std::byte*>(begin) + i * stride;
    count_ += n;
  }
  /// A row of `width` elements.
  template <class T>
  void add_row(const T* row, std::int64_t width) {
    constexpr auto line = static_cast<std::int64_t>(cache_line);
    constexpr std::int64_t elements = line / std::int64_t{sizeof(T)};
    add(row, line, ceil_div(width, elements));
  }
  [[nodiscard]] std::span<const void* const> all() const { return {at_.data(), at_.data() + count_}; }

 private:
  static constexpr std::int64_t most = 256;
  std::array<const void*, most> at_;  // the first count_ are set
  std::int64_t count_ = 0;
};

/// Rows to copy during a product, a cache line at a time: loads of the product leave half of the CPU's load slots free
/// and all of its store slots. A line's place in the row after it is prefetched when it is copied.
class Copies {
 public:
  struct Line {
    const float *from, *next;
    float* to;
  };
  static constexpr std::int64_t elements = cache_line / sizeof(float);  ///< of a line

  Copies() = default;
  /// The first `lines` cache lines' worth of each of `rows` rows.
  Copies(Panel<const float> from, Panel<float> to, std::int64_t rows, std::int64_t lines)
      : from_(from.data),
        to_(to.data),
        lines_(lines),
        left_(lines),
        stride_(from.stride),
        from_skip_(from.stride - lines * elements),
        to_skip_(to.stride - lines * elements),
        count_(rows * lines) {}
  [[nodiscard]] std::int64_t count() const { return count_; }

  /// The next line; at most count() times.
  [[gnu::always_inline]] Line next() {
    const Line line{from_, from_ + stride_, to_};
    from_ += elements;
    to_ += elements;
    if (--left_ == 0) {
      left_ = lines_;
      from_ += from_skip_;
      to_ += to_skip_;
    }
    return line;
  }

 private:
  const float* from_ = nullptr;
  float* to_ = nullptr;
  std::int64_t lines_ = 0, left_ = 0, stride_ = 0, from_skip_ = 0, to_skip_ = 0, count_ = 0;
};

/// Work interleaved with the multiply-adds of a product.
struct Interleaved {
  Lines prefetches;
  Copies copies;
};

/// Counts out a number in equal parts.
class Share {
 public:
  /// 0 parts: the first one is all.
  Share(std::int64_t count, std::int64_t parts) : count_(count), parts_(parts > 0 ? parts : 1) {}
  /// for (share.begin_part(); share.due();): as many as the next part has.
  [[gnu::always_inline]] void begin_part() { due_ += count_; }
  [[gnu::always_inline]] bool due() {
    if (due_ < parts_) return false;
    due_ -= parts_;
    return true;
  }
  /// Number of units in the next part.
  [[gnu::always_inline]] std::int64_t part() {
    if (parts_ == 1 || count_ == 0) return count_;
    due_ += count_;
    const std::int64_t n = due_ / parts_;
    due_ -= n * parts_;
    return n;
  }

 private:
  std::int64_t count_, parts_, due_ = 0;  // due: parts_ times as many as are due
};

/// Distributes work interleaved with a product over its tiles, in equal parts.
class PartsOfTiles {
 public:
  struct Part {
    std::span<const void* const> prefetches;
    Copies* copies = nullptr;
    std::int64_t lines = 0;  ///< of copies
  };
  /// interleaved: nullptr for nothing.
  PartsOfTiles(Interleaved* interleaved, std::int64_t tiles)
      : copies_(interleaved == nullptr ? nullptr : &interleaved->copies),
        ahead_(interleaved == nullptr ? nullptr : interleaved->prefetches.all().data()),
        prefetches_(interleaved == nullptr ? 0 : std::ssize(interleaved->prefetches.all()), tiles),
        lines_(interleaved == nullptr ? 0 : interleaved->copies.count(), tiles) {}
  /// The next tile's. Where there are no tiles a first one has all.
  [[gnu::always_inline]] Part next() {
    const std::int64_t here = prefetches_.part();
    const Part part{{ahead_, static_cast<std::size_t>(here)}, copies_, lines_.part()};
    ahead_ += here;
    return part;
  }

 private:
  Copies* copies_;
  const void* const* ahead_;
  Share prefetches_, lines_;
};

/// C = D + A B: the small product of the blocked algorithms, on the calling thread. A: [m, k], B: [k, n], C and D: [m,
/// n] in fp32; D may be C, or nothing. Each element of C is summed in the order of k, by fused multiply-adds if the CPU
/// has them, for any sizes. B should stay in the second-level cache (64 KiB to 512 KiB).
///
/// For Pairs: k counts pairs, a row of B is a pair of rows, sums are fp32 (VDPBF16PS: subnormal numbers count as zero).
/// Only where has_pair_products. d.data: nullptr for nothing; interleaved: nullptr for none.
template <class T>
using BlockProduct = void(ProductSizes sizes, Panel<const T> a, Panel<const T> b, Panel<float> c, Panel<const float> d,
                          Interleaved* interleaved);

BlockProduct<float> block_product;
BlockProduct<Pair> block_product;
/// The same with A^T in A's place: A: [k, m].
BlockProduct<float> block_product_transposed;
BlockProduct<Pair> block_product_transposed;

/// C = A B, or C += A B.
inline void block_product(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c, bool add) {
  block_product(sizes, a, b, c, {add ? c.data : nullptr, c.stride}, nullptr);
}
inline void block_product(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c, bool add) {
  block_product(sizes, a, b, c, {add ? c.data : nullptr, c.stride}, nullptr);
}
inline void block_product_transposed(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                                     bool add) {
  block_product_transposed(sizes, a, b, c, {add ? c.data : nullptr, c.stride}, nullptr);
}
inline void block_product_transposed(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c,
                                     bool add) {
  block_product_transposed(sizes, a, b, c, {add ? c.data : nullptr, c.stride}, nullptr);
}

/// Rows of C that are computed at once: a product of fewer reads B as often.
extern const std::int64_t product_rows;

/// Whether this CPU has AVX-512 (F and BW).
extern const bool has_avx512;
/// Whether this CPU multiplies pairs (AVX512-BF16).
extern const bool has_pair_products;
/// Whether products of bf16 are to be those of pairs: GemmChoice::pairs, where the CPU has them.
[[nodiscard]] bool multiplies_pairs();

/// Turns the first n floats of each of m rows into n / 2 pairs, in place, to nearest, ties to even. n: a multiple
/// of 16. Only where has_pair_products.
void narrow_to_pairs(Panel<float> rows, std::int64_t m, std::int64_t n);

// The versions that the functions above choose from.
BlockProduct<float> block_product_portable, block_product_transposed_portable;  ///< for any CPU
BlockProduct<float> block_product_avx512, block_product_transposed_avx512;      ///< has_avx512
BlockProduct<Pair> block_product_avx512, block_product_transposed_avx512;       ///< has_pair_products

}  // namespace trireme::kernels
