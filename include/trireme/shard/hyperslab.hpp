// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/shard/layout.hpp"

/// Elements at equal distances, as one value: the columns of a matrix that a tensor rank holds are a run in every row.
namespace trireme::shard {

/// `count` runs of `length` consecutive elements each; run i begins at `first + i * stride`. A range is one run, of
/// stride 0. With more runs the stride is the length of a row of the parameter, and no run leaves its row.
struct Hyperslab {
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t stride = 0;
  std::int64_t count = 1;
  [[nodiscard]] static Hyperslab of(Range range) { return {.first = range.begin, .length = range.size()}; }
  /// Elements of all runs.
  [[nodiscard]] std::int64_t size() const { return length * count; }
  /// One past the last element of the last run.
  [[nodiscard]] std::int64_t end() const { return first + (count - 1) * stride + length; }
  friend bool operator==(const Hyperslab&, const Hyperslab&) = default;
};

/// Pieces of one parameter that are contiguous in a shard, from `offset` on.
struct StridedSlice {
  int parameter = 0;    ///< index in the block
  Hyperslab hyperslab;  ///< of the parameter, row-major
  std::int64_t offset = 0;
  friend bool operator==(const StridedSlice&, const StridedSlice&) = default;
};

/// The same elements as `slices`, in the same order, with rows combined: at
/// most three for each parameter of a shard (the end of a row, whole rows, the
/// beginning of one). slices: of parameters of `block`, from `whole_slices`.
[[nodiscard]] std::vector<StridedSlice> fold(const model::ParameterBlock& block, const std::vector<Slice>& slices);

}  // namespace trireme::shard
