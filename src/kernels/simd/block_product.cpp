// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/block_product.hpp"

#include <algorithm>

#include "kernels/simd/lanes.hpp"

namespace trireme::kernels {
namespace {

/// A, or A^T: element (r, p) is at[r * row + p * column]; one of the distances is 1.
struct Left {
  const float* at;
  std::int64_t row, column;

  [[nodiscard]] Left from(std::int64_t r, std::int64_t p) const {
    return {.at = at + r * row + p * column, .row = row, .column = column};
  }
};

/// Addresses of a tile of C and of its panels.
struct Tile {
  std::int64_t k;
  Left a;
  Panel<const float> b;
  Panel<float> c;
  Panel<const float> d;
  PartsOfTiles::Part interleaved = {};
};

void copy(Copies::Line line) {
  __builtin_prefetch(line.next);
  for (std::int64_t i = 0; i < Copies::elements; i += 8) store(line.to + i, load(line.from + i, All{}), All{});
}

/// A tile of C of Height rows and Width eights, held in registers while k runs.
template <int Height, int Width>
void tile(const Tile& t) {
  Eight sums[Height][Width];
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v)
      sums[r][v] = t.d.data != nullptr ? load(t.d.data + r * t.d.stride + 8 * v, All{}) : Eight{};
  }
  const auto& [prefetches, copies, lines] = t.interleaved;
  const std::int64_t events = std::max(std::ssize(prefetches), lines), apart = t.k / (events + 1) + 1;
  std::int64_t event = 0;
  for (std::int64_t p = 0; p < t.k;) {
    std::int64_t end = t.k;
    if (event < events) {
      if (event < std::ssize(prefetches)) __builtin_prefetch(prefetches[static_cast<std::size_t>(event)], 0, 2);
      if (event < lines) copy(copies->next());
      ++event;
      end = std::min(p + apart, t.k);
    }
    for (; p < end; ++p) {
      Eight row[Width];
      for (int v = 0; v < Width; ++v) row[v] = load(t.b.data + p * t.b.stride + 8 * v, All{});
      for (int r = 0; r < Height; ++r) {
        const Eight x = eight(t.a.at[r * t.a.row + p * t.a.column]);
        for (int v = 0; v < Width; ++v) sums[r][v] += x * row[v];
      }
    }
  }
  for (; event < lines; ++event) copy(copies->next());
  for (int r = 0; r < Height; ++r) {
    for (int v = 0; v < Width; ++v) store(t.c.data + r * t.c.stride + 8 * v, sums[r][v], All{});
  }
}

/// Up to six rows of Width eights.
template <int Width>
void rows_of_tile(std::int64_t height, const Tile& t) {
  constexpr decltype(&tile<1, Width>) by_height[] = {tile<1, Width>, tile<2, Width>, tile<3, Width>,
                                                     tile<4, Width>, tile<5, Width>, tile<6, Width>};
  by_height[height - 1](t);
}

/// A product; interleaved work is spread over its tiles.
class Product {
 public:
  Product(ProductSizes s, Left a, Panel<const float> b, Panel<float> c, Panel<const float> d, Interleaved* interleaved)
      : s_(s),
        a_(a),
        b_(b),
        c_(c),
        d_(d),
        tiles_((s.n / 16 + s.n % 16 / 8) * ((s.m + 5) / 6)),
        parts_(interleaved, tiles_) {}

  void run() {
    std::int64_t j = 0;
    for (; j + 16 <= s_.n; j += 16) columns<2>(j);
    for (; j + 8 <= s_.n; j += 8) columns<1>(j);
    if (j < s_.n) last_columns(j);
    if (tiles_ > 0) return;
    const PartsOfTiles::Part all = parts_.next();
    for (std::int64_t line = 0; line < all.lines; ++line) copy(all.copies->next());
  }

 private:
  /// Width eights of C's columns, all rows: six rows at a time, then those left.
  template <int Width>
  void columns(std::int64_t j) {
    for (std::int64_t i = 0; i < s_.m; i += 6) {
      rows_of_tile<Width>(std::min<std::int64_t>(6, s_.m - i),
                          {.k = s_.k,
                           .a = a_.from(i, 0),
                           .b = {b_.data + j, b_.stride},
                           .c = {c_.data + i * c_.stride + j, c_.stride},
                           .d = d_.data == nullptr ? d_ : Panel<const float>{d_.data + i * d_.stride + j, d_.stride},
                           .interleaved = parts_.next()});
    }
  }

  /// Fewer than eight columns: B's are copied and padded with zeros, so that whole tiles multiply them.
  void last_columns(std::int64_t j) const {
    constexpr std::int64_t depth = 256;
    float panel[depth * 8], part[6 * 8];
    const First some{s_.n - j};
    Panel<const float> d = d_;
    std::int64_t from = 0;
    do {
      const std::int64_t here = std::min(depth, s_.k - from);
      for (std::int64_t p = 0; p < here; ++p)
        store(panel + 8 * p, load(b_.data + (from + p) * b_.stride + j, some), All{});
      for (std::int64_t i = 0; i < s_.m; i += 6) {
        const std::int64_t height = std::min<std::int64_t>(6, s_.m - i);
        float* const c = c_.data + i * c_.stride + j;
        for (std::int64_t r = 0; r < height && d.data != nullptr; ++r)
          store(part + 8 * r, load(d.data + (i + r) * d.stride + j, some), All{});
        rows_of_tile<1>(height, {.k = here,
                                 .a = a_.from(i, from),
                                 .b = {panel, 8},
                                 .c = {part, 8},
                                 .d = {d.data == nullptr ? nullptr : part, 8}});
        for (std::int64_t r = 0; r < height; ++r) store(c + r * c_.stride, load(part + 8 * r, All{}), some);
      }
      from += here;
      d = {c_.data, c_.stride};
    } while (from < s_.k);
  }

  ProductSizes s_;
  Left a_;
  Panel<const float> b_;
  Panel<float> c_;
  Panel<const float> d_;
  std::int64_t tiles_;  // without last_columns
  PartsOfTiles parts_;
};

}  // namespace

const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
const std::int64_t product_rows = has_avx512 ? 6 : 24;
const bool has_pair_products = has_avx512 && __builtin_cpu_supports("avx512bf16");

void block_product_portable(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                            Panel<const float> d, Interleaved* interleaved) {
  Product(sizes, {.at = a.data, .row = a.stride, .column = 1}, b, c, d, interleaved).run();
}
void block_product_transposed_portable(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                                       Panel<const float> d, Interleaved* interleaved) {
  Product(sizes, {.at = a.data, .row = 1, .column = a.stride}, b, c, d, interleaved).run();
}

void block_product(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c, Panel<const float> d,
                   Interleaved* interleaved) {
  has_avx512 ? block_product_avx512(sizes, a, b, c, d, interleaved)
             : block_product_portable(sizes, a, b, c, d, interleaved);
}
void block_product_transposed(ProductSizes sizes, Panel<const float> a, Panel<const float> b, Panel<float> c,
                              Panel<const float> d, Interleaved* interleaved) {
  has_avx512 ? block_product_transposed_avx512(sizes, a, b, c, d, interleaved)
             : block_product_transposed_portable(sizes, a, b, c, d, interleaved);
}
void block_product(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c, Panel<const float> d,
                   Interleaved* interleaved) {
  block_product_avx512(sizes, a, b, c, d, interleaved);
}
void block_product_transposed(ProductSizes sizes, Panel<const Pair> a, Panel<const Pair> b, Panel<float> c,
                              Panel<const float> d, Interleaved* interleaved) {
  block_product_transposed_avx512(sizes, a, b, c, d, interleaved);
}

}  // namespace trireme::kernels
