// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/gemm/packing.hpp"
#include "kernels/simd/parallel.hpp"
#include "kernels/simd/transpose.hpp"
#include "trireme/base/ceil_div.hpp"

/// Packing as part of multiplying: while one panel is multiplied, the next is packed, a few rows during every tile
/// where packing is copying, or else after it, when their cache lines were prefetched during the tile before. Packed at
/// once, a panel is read at the latency of memory.
namespace trireme::kernels {

/// A part of a matrix packed row by row: element j of row k at to[k * stride + j]. For pairs, two rows make one.
template <class Element, class T>
class PackedRows {
 public:
  static constexpr std::int64_t ahead = 8;  ///< steps between prefetch and use, if all are packed at once
  PackedRows(Rows<const T> from, Part part, Panel<Element> to) : from_(from), part_(part), to_(to) {}
  [[nodiscard]] std::int64_t steps() const { return terms_of<Element>(part_.rows); }
  /// Adds the cache lines that a step reads.
  void add_lines(std::int64_t step, Lines& lines) const {
    constexpr std::int64_t rows = std::is_same_v<Element, Pair> ? 2 : 1;
    for (std::int64_t row = rows * step; row < std::min(part_.rows, rows * (step + 1)); ++row)
      lines.add_row(from_[part_.row + row] + part_.begin, part_.width);
  }
  void pack(std::int64_t step) const { pack_row(from_, part_, step, to_.data + step * to_.stride); }
  static constexpr bool copies = std::is_same_v<Element, T>;  ///< whether packing is copying
  /// Packs steps [begin, end) except the whole cache lines, which are returned as copies.
  [[nodiscard]] Copies pack(std::int64_t begin, std::int64_t end) const requires copies {
    const std::int64_t lines = part_.width / Copies::elements, whole = lines * Copies::elements;
    const Panel<const float> from{from_[part_.row + begin] + part_.begin, from_.stride};
    const Panel<float> to{to_.data + begin * to_.stride, to_.stride};
    for (std::int64_t step = 0; step < end - begin && whole < part_.width; ++step)
      copy_row(from.data + step * from.stride + whole, to.data + step * to.stride + whole, part_.width - whole);
    return Copies(from, to, end - begin, lines);
  }

 private:
  Rows<const T> from_;
  Part part_;
  Panel<Element> to_;
};

/// A part of a matrix packed transposed and in fp32: element j of row r at to[j * stride + r]. A step is the columns of
/// a cache line.
template <class T>
class PackedColumns {
 public:
  static constexpr std::int64_t ahead = 2;
  static constexpr bool copies = false;
  PackedColumns(Rows<const T> from, Part part, Panel<float> to) : from_(from), part_(part), to_(to) {}
  [[nodiscard]] std::int64_t steps() const { return ceil_div(part_.width, columns); }
  void add_lines(std::int64_t step, Lines& lines) const {
    lines.add(from_[part_.row] + part_.begin + step * columns, from_.stride * std::int64_t{sizeof(T)}, part_.rows);
  }
  void pack(std::int64_t step) const {
    const std::int64_t column = step * columns;
    transpose(from_[part_.row] + part_.begin + column, from_.stride, part_.rows,
              std::min(columns, part_.width - column), to_.data + column * to_.stride, to_.stride);
  }

 private:
  static constexpr std::int64_t columns = cache_line / sizeof(T);
  Rows<const T> from_;
  Part part_;
  Panel<float> to_;
};

/// Packs at once.
template <class Packed>
void pack_all(const Packed& packed) {
  for (std::int64_t step = 0; step < packed.steps(); ++step) {
    Lines lines;
    if (step + Packed::ahead < packed.steps()) packed.add_lines(step + Packed::ahead, lines);
    for (const void* line : lines.all()) __builtin_prefetch(line);
    packed.pack(step);
  }
}

/// The steps of packing to be done after each number of tiles, of `tiles`.
class StepsOfTiles {
 public:
  StepsOfTiles(std::int64_t steps, std::int64_t tiles) : steps_(steps), tiles_(tiles) {}
  [[nodiscard]] std::int64_t after(std::int64_t tile) const {
    return ceil_div(std::min(tile, tiles_) * steps_, tiles_);
  }

 private:
  std::int64_t steps_, tiles_;
};

/// Packs while `tiles` tiles are multiplied: where packing is copying, the product of a tile copies; elsewhere a step
/// is packed after the tile during which it was prefetched.
template <class Packed>
class PackedMeanwhile {
 public:
  /// packed: nothing if there is nothing more to pack.
  PackedMeanwhile(std::optional<Packed> packed, std::int64_t tiles)
      : packed_(std::move(packed)), steps_(packed_ ? packed_->steps() : 0, tiles) {}

  void before_tile(Interleaved& during) {
    ++tile_;
    if constexpr (Packed::copies) {
      const std::int64_t upto = steps_.after(tile_);
      if (done_ < upto) during.copies = packed_->pack(std::exchange(done_, upto), upto);
    } else {
      for (const std::int64_t upto = steps_.after(tile_ + 1); prefetched_ < upto; ++prefetched_)
        packed_->add_lines(prefetched_, during.prefetches);
    }
  }
  void after_tile() {
    if constexpr (!Packed::copies)
      for (const std::int64_t upto = steps_.after(tile_); done_ < upto; ++done_) packed_->pack(done_);
  }

 private:
  std::optional<Packed> packed_;
  StepsOfTiles steps_;
  std::int64_t tile_ = 0;                   // tiles that were begun
  std::int64_t prefetched_ = 0, done_ = 0;  // steps; of copies none are prefetched
};

/// Number of tiles in multiply() for m rows.
inline std::int64_t tiles_of(std::int64_t m) { return ceil_div(m, product_rows); }

/// block_product, or block_product_transposed, tile by tile; of C and D, the next tile's lines are prefetched.
template <bool transposed, class Element, class Packed>
void multiply(ProductSizes s, Panel<const Element> a, Panel<const Element> b, Panel<float> c, Panel<const float> d,
              PackedMeanwhile<Packed>& meanwhile) {
  for (std::int64_t i = 0; i < s.m; i += product_rows) {
    Interleaved during;
    Lines& ahead = during.prefetches;
    for (std::int64_t row = i + product_rows; row < std::min(s.m, i + 2 * product_rows); ++row) {
      ahead.add_row(c.data + row * c.stride, s.n);
      if (d.data != nullptr && d.data != c.data) ahead.add_row(d.data + row * d.stride, s.n);
    }
    meanwhile.before_tile(during);
    const ProductSizes sizes{std::min(product_rows, s.m - i), s.n, s.k};
    const Panel<float> rows{c.data + i * c.stride, c.stride};
    const Panel<const float> sum_with{d.data == nullptr ? nullptr : d.data + i * d.stride, d.stride};
    if constexpr (transposed) {
      block_product_transposed(sizes, {a.data + i, a.stride}, b, rows, sum_with, &during);
    } else {
      block_product(sizes, {a.data + i * a.stride, a.stride}, b, rows, sum_with, &during);
    }
    meanwhile.after_tile();
  }
}

/// Calls body(scratch, item, packed, meanwhile) once for each item in [0, n); a multiple of `together` and the next
/// together - 1 items run one after the other on one thread. packed: the result of packing(item, to); meanwhile packs
/// the next item, if there is one, and must get tiles(item) tiles. `to`: room for `floats` floats; scratch: another
/// `scratch_floats`.
template <class Packing, class Tiles, class Body>
void in_pipeline(std::int64_t n, std::int64_t together, std::int64_t floats, std::int64_t scratch_floats,
                 const Packing& packing, const Tiles& tiles, const Body& body) {
  using Packed = decltype(packing(0, nullptr));
  const std::int64_t groups = n / together, workers = worker_count(groups), of_worker = 2 * floats + scratch_floats;
  const at::Tensor workspace = at::empty({workers, of_worker}, at::kFloat);
  auto* const data = workspace.mutable_data_ptr<float>();
  parallel(workers, [&](std::int64_t worker) {
    float *here = data + worker * of_worker, *next = here + floats, *const scratch = next + floats;
    // The worker's items, in order: those of groups worker, worker + workers, ...
    const std::int64_t count = ceil_div(groups - worker, workers) * together;
    const auto item = [&](std::int64_t i) { return (worker + i / together * workers) * together + i % together; };
    if (count > 0) pack_all(packing(item(0), here));
    for (std::int64_t i = 0; i < count; ++i) {
      PackedMeanwhile<Packed> meanwhile(i + 1 < count ? std::optional(packing(item(i + 1), next)) : std::nullopt,
                                        tiles(item(i)));
      body(scratch, item(i), here, meanwhile);
      std::swap(here, next);
    }
  });
}

}  // namespace trireme::kernels
