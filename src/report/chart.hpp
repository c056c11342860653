// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

enum class Unit { number, bytes, seconds, count, share };
/// "1.5 GiB", "12.3 ms", "12.3k", "45 %", "0.0003".
[[nodiscard]] std::string text_of(double value, Unit unit);

/// Text for HTML, in and outside of attributes.
[[nodiscard]] std::string escaped(std::string_view text);

/// At most about `most` of the points: of many neighbours the lowest and the highest, so that no spike is lost; the
/// first and the last.
[[nodiscard]] Points thinned(const Points& points, std::size_t most = 1200);

/// Colors that lines and areas have, in turn.
inline constexpr int palette_size = 10;

struct Line {
  std::string label;  ///< "" of the only line of a chart
  int color = 0;
  Points points;
  bool marks = false;  ///< a mark at each point, with its numbers
};

struct Chart {
  std::string title;
  Unit unit = Unit::number;
  std::vector<Line> lines;
  bool logarithmic = false;       ///< where the numbers are positive and span a decade
  bool from_zero = false;         ///< the axis begins at 0
  std::vector<double> verticals;  ///< restarts
  bool stacked = false;           ///< areas on one another; all lines with the same x
  Unit x_unit = Unit::number;
  const char* x_title = "";
  double width = 720;
};

/// Width of charts over the whole page.
inline constexpr double page_width = 1240;

/// The numbers at an axis' ticks: 1, 2 or 5 times a power of ten apart, from `low` to `high`.
[[nodiscard]] std::vector<double> ticks(double low, double high, int about);

/// Names and their colors in rows between `left` and `right`, below the title.
struct Legend {
  std::string text;
  double bottom = 0;
};
[[nodiscard]] Legend legend(std::span<const std::pair<std::string, int>> names, double left, double right);

/// An SVG element with a title, axes and a legend; "" without points.
[[nodiscard]] std::string draw(const Chart& chart);

/// A traced step: a row for each lane of each process.
[[nodiscard]] std::string draw_timeline(const TracedStep& step);

}  // namespace trireme::report
