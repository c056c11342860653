// SPDX-License-Identifier: Apache-2.0
//
// The timeline of a traced step as SVG.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "report/chart.hpp"

namespace trireme::report {
namespace {

constexpr double margin = 14, row_height = 16;
constexpr double least_width = 0.25;  // narrower operations are not drawn

constexpr double letter = 5.4;  // width in a bar

std::string verb_of(const std::string& op) { return op.substr(0, op.find(' ')); }

/// The words of an op that fit into a bar: "forward b0 m0", else its block and microbatch "b0 m0", its block "b0", or
/// none.
std::string name_in_bar(const std::string& op, double wide) {
  const auto fits = [wide](const std::string& text) { return letter * static_cast<double>(text.size()) + 4 <= wide; };
  std::string text = op.substr(0, op.find_first_of("<>-") == std::string::npos ? op.size() : op.find_first_of("<>-"));
  while (text.ends_with(' ')) text.pop_back();
  if (fits(text)) return text;
  if (text.find(' ') == std::string::npos) return "";
  text = text.substr(text.find(' ') + 1);
  if (fits(text)) return text;
  text = text.substr(0, text.find(' '));
  return fits(text) ? text : "";
}

}  // namespace

std::string draw_timeline(const TracedStep& step) {
  double end = 0;
  std::map<std::string, int> verbs;  // color by verb
  std::map<std::pair<std::string, std::string>, int> rows;
  for (const auto& [process, spans] : step.spans)
    for (const Span& span : spans) {
      end = std::max(end, span.end);
      verbs.emplace(verb_of(span.op), static_cast<int>(verbs.size()) % palette_size);
      rows.emplace(std::pair(process, span.lane), 0);
    }
  if (end == 0) return "";
  int count = 0;
  for (auto& [name, row] : rows) row = count++;

  std::size_t longest = 0;
  for (const auto& [name, row] : rows) longest = std::max(longest, name.first.size() + 1 + name.second.size());
  const double labels = std::max(150.0, 6.2 * static_cast<double>(longest) + 10);
  const std::vector<std::pair<std::string, int>> names(verbs.begin(), verbs.end());
  const Legend colors = legend(names, labels, page_width - margin);
  const double first_row = colors.bottom + 13, bottom = first_row + row_height * count;
  const double scale = (page_width - labels - margin) / end;
  std::string out = fmt::format(
      "<svg role=\"img\" aria-label=\"Timeline of step {0}\" viewBox=\"0 0 {1} {2}\"><text class=\"title\" x=\"{3}\" "
      "y=\"13\">Timeline of step {0}</text>{4}",
      step.step, page_width, bottom + 30, labels, colors.text);
  for (const auto& [name, row] : rows)
    out += fmt::format("<text class=\"end\" x=\"{}\" y=\"{}\">{} {}</text>", labels - 6,
                       first_row + row_height * row + 12, escaped(name.first), escaped(name.second));
  for (const double tick : ticks(0, end, 10))
    out += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1}V{2}\"/><text class=\"mid\" x=\"{0:.1f}\" y=\"{3}\">{4}</text>",
        labels + tick * scale, first_row, bottom, bottom + 16, escaped(text_of(tick, Unit::seconds)));
  for (const auto& [process, spans] : step.spans)
    for (const Span& span : spans) {
      const double wide = (span.end - span.begin) * scale;
      if (wide < least_width) continue;
      out += fmt::format(
          "<rect class=\"f{}\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\"><title>{}: {}</title></rect>",
          verbs[verb_of(span.op)], labels + span.begin * scale, first_row + row_height * rows[{process, span.lane}] + 2,
          wide, row_height - 3, escaped(span.op), escaped(text_of(span.end - span.begin, Unit::seconds)));
      if (const std::string name = name_in_bar(span.op, wide); !name.empty())
        out += fmt::format("<text class=\"inside mid\" x=\"{:.1f}\" y=\"{}\">{}</text>",
                           labels + (span.begin + span.end) / 2 * scale,
                           first_row + row_height * rows[{process, span.lane}] + 12, escaped(name));
    }
  return out + "</svg>\n";
}

}  // namespace trireme::report
