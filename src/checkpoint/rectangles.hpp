// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/shard/hyperslab.hpp"

namespace trireme::checkpoint {

/// Part of a row-major matrix; a vector is a matrix of one row.
struct Rectangle {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
  [[nodiscard]] std::int64_t size() const { return rows * columns; }
};

/// `runs` of a parameter of rows of `columns`, in the order of their elements. Up to three for one run: the end of a
/// row, whole rows, the beginning of a row; one for several, which are parts of rows.
[[nodiscard]] std::vector<Rectangle> rectangles(const shard::Hyperslab& hyperslab, std::int64_t columns);

/// Why `parts` are not every element of `rows` rows of `columns` once; empty when they are. In O(n log n) steps,
/// however large the matrix is.
[[nodiscard]] std::string not_covered_once(std::vector<Rectangle> parts, std::int64_t rows, std::int64_t columns);

}  // namespace trireme::checkpoint
