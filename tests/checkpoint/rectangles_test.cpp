// SPDX-License-Identifier: Apache-2.0
#include "../../src/checkpoint/rectangles.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/base/philox.hpp"

namespace trireme::checkpoint {
namespace {

using testing::HasSubstr;

/// Number of `parts` that contain each element of `rows` x `columns`.
std::vector<int> times(const std::vector<Rectangle>& parts, std::int64_t rows, std::int64_t columns) {
  std::vector<int> seen(static_cast<std::size_t>(rows * columns), 0);
  for (const Rectangle& part : parts)
    for (std::int64_t row = part.row; row < part.row + part.rows; ++row)
      for (std::int64_t column = part.column; column < part.column + part.columns; ++column)
        ++seen.at(static_cast<std::size_t>(row * columns + column));
  return seen;
}

TEST(Rectangles, HoldTheElementsOfTheirRunsInOrder) {
  constexpr std::int64_t rows = 5, columns = 7;
  for (std::int64_t first = 0; first < rows * columns; ++first)
    for (std::int64_t length = 1; first + length <= rows * columns; ++length) {
      const auto parts = rectangles({.first = first, .length = length}, columns);
      ASSERT_LE(parts.size(), 3U);
      std::int64_t at = first;
      for (const Rectangle& part : parts) {
        EXPECT_EQ(part.row * columns + part.column, at);
        EXPECT_TRUE(part.rows == 1 || part.columns == columns);
        at += part.size();
      }
      EXPECT_EQ(at, first + length);
    }
  const auto strided = rectangles({.first = 9, .length = 3, .stride = columns, .count = 4}, columns);
  ASSERT_EQ(strided.size(), 1U);
  EXPECT_EQ(strided[0].row, 1);
  EXPECT_EQ(strided[0].column, 2);
  EXPECT_EQ(strided[0].size(), 12);
}

TEST(Rectangles, CoverAMatrixOnceExactlyWhenEveryElementIsInOne) {
  int covered = 0;
  for (std::uint64_t trial = 0; trial < 4000; ++trial) {
    auto draw = [trial, n = std::uint64_t{0}](std::int64_t below) mutable {
      return static_cast<std::int64_t>(uniform_at(stream_key(trial, "cover"), n++) * static_cast<double>(below));
    };
    const std::int64_t rows = 1 + draw(6), columns = 1 + draw(6);
    // A cover, cut at random lines; then perhaps one of its rectangles is moved or resized.
    std::vector<Rectangle> parts{{.row = 0, .column = 0, .rows = rows, .columns = columns}};
    for (std::int64_t cuts = draw(6); cuts > 0; --cuts) {
      Rectangle& whole = parts[static_cast<std::size_t>(draw(static_cast<std::int64_t>(parts.size())))];
      Rectangle rest = whole;
      if (draw(2) == 0) {
        whole.rows = 1 + draw(whole.rows);
        rest.row += whole.rows;
        rest.rows -= whole.rows;
      } else {
        whole.columns = 1 + draw(whole.columns);
        rest.column += whole.columns;
        rest.columns -= whole.columns;
      }
      if (rest.size() > 0) parts.push_back(rest);
    }
    if (draw(2) == 0) {
      Rectangle& one = parts[static_cast<std::size_t>(draw(static_cast<std::int64_t>(parts.size())))];
      one = {.row = draw(rows), .column = draw(columns), .rows = 1, .columns = 1};
      one.rows += draw(rows - one.row);
      one.columns += draw(columns - one.column);
    }
    const std::vector<int> seen = times(parts, rows, columns);
    const bool once = std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; });
    EXPECT_EQ(not_covered_once(parts, rows, columns).empty(), once);
    covered += once ? 1 : 0;
  }
  EXPECT_GT(covered, 1000);
  EXPECT_LT(covered, 3900);
}

TEST(Rectangles, ReportMissingAndRepeatedElements) {
  EXPECT_EQ(not_covered_once({}, 2, 3), "lacks 6 of its 6 elements");
  EXPECT_THAT(not_covered_once({{0, 0, 2, 3}, {1, 1, 1, 1}}, 2, 3), HasSubstr("overlap at element 4"));
}

}  // namespace
}  // namespace trireme::checkpoint
