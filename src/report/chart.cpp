// SPDX-License-Identifier: Apache-2.0
#include "report/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "trireme/base/units.hpp"

namespace trireme::report {
namespace {

constexpr double right = 14, bottom = 34, legend_row = 13;
constexpr std::size_t neighbours = 11;     // window in which a point can be an outlier
constexpr std::size_t least_points = 20;   // fewer have no outliers
constexpr double outlier_distance = 10;    // over the median distance
constexpr double much_larger = 1.5;        // of ranges
constexpr std::size_t hover_points = 100;  // that a pointer can distinguish

/// Left edge of the plot, after the numbers of its axis.
double left_of(const Chart& chart) { return chart.width < 500 ? 62 : 78; }

/// A linear or logarithmic axis on the page.
struct Axis {
  double low, high, begin, end;  ///< numbers, and their positions
  bool logarithmic = false;

  /// The nearest place on the axis.
  [[nodiscard]] double at(double value) const {
    const auto f = [&](double v) { return logarithmic ? std::log10(v) : v; };
    return begin + (f(std::clamp(value, low, high)) - f(low)) / (f(high) - f(low)) * (end - begin);
  }
};

Axis axis_of(double low, double high, double begin, double end) {
  if (low == high) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.05;
    low -= room;
    high += room;
  }
  return {low, high, begin, end};
}

std::vector<double> decades(double low, double high) {
  std::vector<double> list;
  for (double tick = std::pow(10, std::ceil(std::log10(low) - 1e-9)); tick <= high * (1 + 1e-9); tick *= 10)
    list.push_back(tick);
  return list;
}

/// Bytes are round in binary units.
std::vector<double> ticks_of(double low, double high, int about, Unit unit) {
  double scale = 1;
  while (unit == Unit::bytes && high / scale >= 1024) scale *= 1024;
  std::vector<double> list = ticks(low / scale, high / scale, about);
  for (double& tick : list) tick *= scale;
  return list;
}

/// Lines as the upper edges of areas on one another.
std::vector<Line> stack(std::vector<Line> lines) {
  for (std::size_t i = 1; i < lines.size(); ++i)
    for (std::size_t p = 0; p < lines[i].points.size(); ++p) lines[i].points[p].y += lines[i - 1].points[p].y;
  return lines;
}

/// Points beyond the axis are drawn at its edge; between two of them the line is interrupted.
std::string path_of(const Points& points, const Axis& x, const Axis& y) {
  const auto beyond = [&](std::size_t i) { return i >= points.size() || points[i].y < y.low || points[i].y > y.high; };
  std::string path;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (beyond(i) && beyond(i - 1) && beyond(i + 1)) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() || (beyond(i) && beyond(i - 1)) ? "M" : "L", x.at(points[i].x),
                        y.at(points[i].y));
  }
  return path;
}

std::vector<std::pair<std::string, int>> names_of(const std::vector<Line>& lines) {
  std::vector<std::pair<std::string, int>> names;
  for (const Line& line : lines)
    if (!line.label.empty()) names.emplace_back(line.label, line.color);
  return names;
}

/// A circle that shows a point's numbers under the pointer.
std::string mark(const Chart& chart, const Line& line, const Point& point, const Axis& x, const Axis& y,
                 std::string_view style, int radius) {
  return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}: {} at {}</title></circle>",
                     style, x.at(point.x), y.at(point.y), radius,
                     escaped(line.label.empty() ? chart.title : line.label), escaped(text_of(point.y, chart.unit)),
                     escaped(text_of(point.x, chart.x_unit)));
}

/// Equidistant points, as many as a pointer can distinguish, including the last.
Points some_of(const Points& points) {
  const std::size_t every = points.size() / hover_points + 1;
  Points some;
  for (std::size_t i = (points.size() - 1) % every; i < points.size(); i += every) some.push_back(points[i]);
  return some;
}

/// A triangle at the edge of the plot for each run of points outside, at its farthest one.
std::string outliers(const Chart& chart, const Line& line, const Axis& x, const Axis& y) {
  std::string out;
  const auto side = [&](const Point& point) { return point.y > y.high ? 1 : point.y < y.low ? -1 : 0; };
  for (std::size_t i = 0; i < line.points.size();) {
    const int of_run = side(line.points[i]);
    Point farthest = line.points[i];
    for (; i < line.points.size() && side(line.points[i]) == of_run; ++i)
      if (of_run * (line.points[i].y - farthest.y) > 0) farthest = line.points[i];
    if (of_run == 0) continue;
    const double at = y.at(farthest.y);
    out += fmt::format(
        "<path class=\"f{}\" d=\"M{:.1f} {:.1f}h8L{:.1f} {:.1f}Z\"><title>{}: {} at {}, beyond the axis</title></path>",
        line.color, x.at(farthest.x) - 4, at, x.at(farthest.x), at - 7 * of_run,
        escaped(line.label.empty() ? chart.title : line.label), escaped(text_of(farthest.y, chart.unit)),
        escaped(text_of(farthest.x, chart.x_unit)));
  }
  return out;
}

/// Restarts as dashed lines, skipped steps as marks on the axis, and their legend at the top right.
std::string events(const Chart& chart, const Axis& x, const Axis& y) {
  const double top = y.end - 6, low = y.begin, end = chart.width - right;
  std::string out;
  for (const double vertical : chart.verticals)
    out += fmt::format("<path class=\"start\" d=\"M{:.1f} {}V{}\"><title>restart before step {}</title></path>",
                       x.at(vertical), top, low, vertical);
  for (const double step : chart.skipped)
    out += fmt::format("<path class=\"skipped\" d=\"M{:.1f} {:.1f}l6 6m0 -6l-6 6\"><title>skipped: {}</title></path>",
                       x.at(step) - 3, low - 3, escaped(text_of(step, chart.x_unit)));
  if (chart.width < 500) return out;  // no space next to the title
  if (!chart.verticals.empty())
    out += fmt::format("<path class=\"start\" d=\"M{} 6V14\"/><text class=\"end\" x=\"{}\" y=\"14\">restart</text>",
                       end - 44, end);
  if (!chart.skipped.empty())
    out += fmt::format(
        "<path class=\"skipped\" d=\"M{} 7l6 6m0 -6l-6 6\"/><text class=\"end\" x=\"{}\" y=\"14\">skipped step</text>",
        end - 142, end - 56);
  return out;
}

std::string grid(const Chart& chart, const Axis& x, const Axis& y) {
  const double top = y.end - 6, low = y.begin, end = chart.width - right, left = left_of(chart);
  std::string out;
  const auto ys = y.logarithmic ? decades(y.low, y.high) : ticks_of(y.low, y.high, 5, chart.unit);
  for (const double tick : ys)
    out += fmt::format(
        "<path class=\"grid\" d=\"M{0} {1:.1f}H{2}\"/><text class=\"end\" x=\"{3}\" y=\"{4:.1f}\">{5}</text>", left,
        y.at(tick), end, left - 6, y.at(tick) + 4, escaped(text_of(tick, chart.unit)));
  for (const double tick : ticks(x.low, x.high, chart.width < 500 ? 4 : 8))
    out += fmt::format("<text class=\"mid\" x=\"{:.1f}\" y=\"{}\">{}</text>", x.at(tick), low + 16,
                       escaped(text_of(tick, chart.x_unit)));
  out += fmt::format("<text class=\"end faint\" x=\"{}\" y=\"{}\">{}</text>", end, low + 29, escaped(chart.x_title));
  out += fmt::format("<path class=\"axis\" d=\"M{} {}V{}H{}\"/>", left, top, low, end);
  return out;
}

}  // namespace

std::string text_of(double value, Unit unit) {
  switch (unit) {
    case Unit::bytes: return to_text(Bytes{std::llround(value)});
    case Unit::count: return to_short_text(value);
    case Unit::share: return fmt::format("{:.3g} %", 100 * value);
    case Unit::minutes: return fmt::format("{:.4g} min", value);
    case Unit::hours: return fmt::format("{:.4g} h", value);
    case Unit::seconds: break;
    case Unit::number: return fmt::format("{:.5g}", value);
  }
  if (value != 0 && std::abs(value) < 1e-3) return fmt::format("{:.3g} us", 1e6 * value);
  return value != 0 && std::abs(value) < 1 ? fmt::format("{:.3g} ms", 1e3 * value) : fmt::format("{:.4g} s", value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

Points thinned(const Points& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t buckets = std::max<std::size_t>(most / 2, 1);
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  Points out{points.front()};
  const auto inner = points.begin() + 1;
  const std::size_t count = points.size() - 2;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const auto begin = inner + static_cast<std::ptrdiff_t>(bucket * count / buckets);
    const auto end = inner + static_cast<std::ptrdiff_t>((bucket + 1) * count / buckets);
    if (begin == end) continue;
    auto [low, high] = std::minmax_element(begin, end, lower);
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
  }
  out.push_back(points.back());
  return out;
}

std::vector<double> ticks(double low, double high, int about) {
  const double raw = (high - low) / about, decade = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * decade;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= raw * (1 - 1e-9)) {
      step = factor * decade;
      break;
    }
  std::vector<double> list;
  for (double n = std::ceil(low / step - 1e-9); n * step <= high + 1e-9 * step; ++n)
    list.push_back(n == 0 ? 0 : n * step);
  return list;
}

Legend legend(std::span<const std::pair<std::string, int>> names, double left_end, double right_end) {
  if (names.empty()) return {.text = "", .bottom = 27};
  Legend out{.text = "", .bottom = 27};
  double at = left_end;
  for (const auto& [name, color] : names) {
    const double wide = 24 + 6.2 * static_cast<double>(name.size());
    if (at > left_end && at + wide > right_end) {
      at = left_end;
      out.bottom += legend_row;
    }
    out.text += fmt::format("<rect class=\"f{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"10\" height=\"6\"/>", color, at,
                            out.bottom - 7);
    out.text += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", at + 14, out.bottom, escaped(name));
    at += wide;
  }
  return out;
}

std::vector<double> running_median(const Points& points, std::size_t window) {
  std::vector<double> medians, around;
  const std::size_t half = window / 2;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t reach = std::min(half, i), begin = i - reach;  // at the beginning only as far back as ahead
    const std::size_t end = std::min(i + reach + 1, points.size());
    const std::size_t from = i + reach < points.size() ? begin : end - std::min(end, 2 * half + 1);
    around.clear();
    for (std::size_t k = from; k < end; ++k) around.push_back(points[k].y);
    const auto middle = around.begin() + static_cast<std::ptrdiff_t>(around.size() / 2);
    std::nth_element(around.begin(), middle, around.end());
    medians.push_back(*middle);
  }
  return medians;
}

Range usual_range(const Points& points) {
  Range all{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}, usual = all;
  const auto add = [](Range& range, double value) {
    range = {std::min(range.low, value), std::max(range.high, value)};
  };
  for (const Point& point : points) add(all, point.y);
  if (points.size() < least_points) return all;
  const std::vector<double> medians = running_median(points, neighbours);
  std::vector<double> distances;
  for (std::size_t i = 0; i < points.size(); ++i) distances.push_back(std::abs(points[i].y - medians[i]));
  std::vector<double> sorted = distances;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (std::size_t i = 0; i < points.size(); ++i)
    if (distances[i] <= outlier_distance * std::max(*middle, 1e-3 * std::abs(medians[i]))) add(usual, points[i].y);
  return all.high - all.low > much_larger * (usual.high - usual.low) ? usual : all;
}

Points smoothed(const Points& points, std::size_t window) {
  std::vector<double> sums{0};
  for (const Point& point : points) sums.push_back(sums.back() + point.y);
  Points out = points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t reach = std::min({window / 2, i, points.size() - 1 - i});
    out[i].y = (sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1);
  }
  return out;
}

std::string draw(const Chart& chart) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<Line> lines = chart.stacked ? stack(chart.lines) : chart.lines;
  double least_x = infinity, most_x = -infinity, least = chart.from_zero || chart.stacked ? 0 : infinity,
         most = -infinity;
  for (const Line& line : lines)
    for (const Point& point : line.points) {
      least_x = std::min(least_x, point.x);
      most_x = std::max(most_x, point.x);
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
  if (least_x == infinity) return "";
  if (chart.limits) {
    least = chart.from_zero ? std::min(0.0, chart.limits->low) : chart.limits->low;
    most = chart.limits->high;
  }
  const double left = left_of(chart);
  const Axis x = axis_of(least_x, most_x, left, chart.width - right);
  const Legend names = legend(names_of(chart.lines), left, chart.width - right);
  const double top = names.bottom + 7, height = top + chart.plot_height + bottom;
  Axis y = axis_of(least, most, height - bottom, top + 6);
  y.logarithmic = chart.logarithmic && least > 0 && most >= 10 * least;

  std::string out = fmt::format(
      "<svg role=\"img\" aria-label=\"{0}\" viewBox=\"0 0 {1} {2}\"><text class=\"title\" x=\"{3}\" "
      "y=\"13\">{0}</text>",
      escaped(chart.title), chart.width, height, chart.width < 500 ? 4 : left);
  out += names.text + grid(chart, x, y) + events(chart, x, y);
  for (const auto& line : std::views::reverse(lines)) {  // the lowest area last, above the higher ones
    if (line.points.empty()) continue;
    const std::string path = path_of(line.points, x, y);
    if (chart.stacked)
      out += fmt::format("<path class=\"f{}\" d=\"{}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\"><title>{}</title></path>",
                         line.color, path, x.at(line.points.back().x), y.begin, x.at(line.points.front().x), y.begin,
                         escaped(line.label));
    else if (line.points.size() > 1)
      out += fmt::format("<path class=\"{}l{}\" d=\"{}\"/>", line.faint ? "raw " : "", line.color, path);
    out += outliers(chart, line, x, y);
    if (line.marks || line.points.size() == 1)
      for (const Point& point : line.points) out += mark(chart, line, point, x, y, fmt::format("f{}", line.color), 3);
    else if (!chart.stacked && chart.width > 500)  // small screens have no pointer
      for (const Point& point : some_of(line.points)) out += mark(chart, line, point, x, y, "number", 5);
  }
  return out + "</svg>\n";
}

}  // namespace trireme::report
