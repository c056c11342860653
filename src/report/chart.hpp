// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/report/run_record.hpp"

namespace trireme::report {

enum class Unit { number, bytes, seconds, minutes, hours, count, share };
/// "1.5 GiB", "12.3 ms", "12.3k", "45 %", "0.0003".
[[nodiscard]] std::string text_of(double value, Unit unit);

/// Text for HTML, in and outside of attributes.
[[nodiscard]] std::string escaped(std::string_view text);

/// At most about `most` of the points: of many neighbours the lowest and the highest, so that no spike is lost; the
/// first and the last.
[[nodiscard]] Points thinned(const Points& points, std::size_t most = 1200);

/// Colors that lines and areas have, in turn.
inline constexpr int palette_size = 10;

/// Lowest and highest number.
struct Range {
  double low = 0, high = 0;
};

/// The range of `points` without outliers: isolated points more than ten times as far from the median of their
/// neighbours as points usually are. The full range if that is not much larger, and of fewer than 20 points.
[[nodiscard]] Range usual_range(const Points& points);

/// Each number's mean with as many neighbours on either side, `window` numbers if there are that many: no lag, and
/// the ends keep their values.
[[nodiscard]] Points smoothed(const Points& points, std::size_t window);

/// The median of the `window` numbers around each one, fewer at the ends.
[[nodiscard]] std::vector<double> running_median(const Points& points, std::size_t window);

struct Line {
  std::string label;  ///< "" of the only line of a chart
  int color = 0;
  Points points;
  bool marks = false;  ///< a mark at each point, with its numbers
  bool faint = false;  ///< behind its smoothed line
};

struct Chart {
  std::string title;
  Unit unit = Unit::number;
  std::vector<Line> lines;
  bool logarithmic = false;       ///< where the numbers are positive and span a decade
  bool from_zero = false;         ///< the axis begins at 0
  std::vector<double> verticals;  ///< restarts
  std::vector<double> skipped;    ///< skipped steps, marked on the axis
  std::optional<Range> limits;    ///< of the axis: points outside are drawn at its edge, with a mark
  bool stacked = false;           ///< areas on one another; all lines with the same x
  Unit x_unit = Unit::number;
  const char* x_title = "";
  double width = 720, plot_height = 192;
};

/// Width of charts over the whole page, and of those for small screens.
inline constexpr double page_width = 1240, small_width = 380;

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
