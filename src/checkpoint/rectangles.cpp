// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rectangles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace trireme::checkpoint {

std::vector<Rectangle> rectangles(const shard::Hyperslab& hyperslab, std::int64_t columns) {
  if (hyperslab.count > 1)
    return {{.row = hyperslab.first / columns,
             .column = hyperslab.first % columns,
             .rows = hyperslab.count,
             .columns = hyperslab.length}};
  std::vector<Rectangle> pieces;
  for (std::int64_t at = hyperslab.first; at < hyperslab.end();) {
    const std::int64_t column = at % columns;
    const std::int64_t left = hyperslab.end() - at;
    const bool whole_rows = column == 0 && left >= columns;
    const std::int64_t wide = whole_rows ? columns : std::min(columns - column, left);
    pieces.push_back({.row = at / columns, .column = column, .rows = whole_rows ? left / columns : 1, .columns = wide});
    at += pieces.back().size();
  }
  return pieces;
}

std::string not_covered_once(std::vector<Rectangle> parts, std::int64_t rows, std::int64_t columns) {
  std::sort(parts.begin(), parts.end(),
            [](auto& a, auto& b) { return std::tie(a.row, a.column) < std::tie(b.row, b.column); });
  // Row by row: the covered columns, and the ends of the rectangles that cover them.
  std::map<std::int64_t, std::int64_t> taken;        // first column -> one past the last
  std::multimap<std::int64_t, std::int64_t> ending;  // one past the last row -> first column
  std::int64_t missing = rows * columns;
  for (const Rectangle& part : parts) {
    for (auto it = ending.begin(); it != ending.end() && it->first <= part.row; it = ending.erase(it))
      taken.erase(it->second);
    const auto next = taken.lower_bound(part.column);
    const bool free = (next == taken.end() || next->first >= part.column + part.columns) &&
                      (next == taken.begin() || std::prev(next)->second <= part.column);
    missing -= part.size();
    if (!free || missing < 0) return fmt::format("has an overlap at element {}", part.row * columns + part.column);
    taken.emplace(part.column, part.column + part.columns);
    ending.emplace(part.row + part.rows, part.column);
  }
  return missing == 0 ? "" : fmt::format("lacks {} of its {} elements", missing, rows * columns);
}

}  // namespace trireme::checkpoint
