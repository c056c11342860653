// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/csv.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::planner {

void Csv::fail(int line, int column, const std::string& what) const {
  throw ConfigError(fmt::format("{}:{}:{}: {}", name_, line, column, what));
}

Csv::Csv(std::string_view text, std::string name) : name_(std::move(name)) {
  std::vector<Row> all;
  int line = 0;
  if (constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF"; text.starts_with(byte_order_mark))
    text.remove_prefix(byte_order_mark.size());
  while (!text.empty()) {
    ++line;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view left = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (left.ends_with('\r')) left.remove_suffix(1);
    if (trim(left).empty()) continue;
    Row row{.line = line, .fields = {{}}};
    bool quoted = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      CsvField& field = row.fields.back();
      if (quoted && left[i] == '"' && i + 1 < left.size() && left[i + 1] == '"') {
        field.text += left[i++];
      } else if (left[i] == '"' && (quoted || field.text.empty())) {
        quoted = !quoted;
      } else if (left[i] == ',' && !quoted) {
        row.fields.push_back({.text = "", .column = static_cast<int>(i) + 2});
      } else {
        field.text += left[i];
      }
    }
    if (quoted) fail(line, row.fields.back().column, "a quote that is not closed on its line");
    all.push_back(std::move(row));
  }
  if (all.empty()) fail(1, 1, "empty; expected a line with the names of the columns");
  header_line_ = all.front().line;
  for (std::size_t i = 0; i < all.front().fields.size(); ++i) {
    const CsvField& field = all.front().fields[i];
    if (!columns_.emplace(trim(field.text), i).second)
      fail(all.front().line, field.column, fmt::format("column {} twice", field.text));
  }
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].fields.size() != columns_.size())
      fail(all[i].line, all[i].fields.back().column,
           fmt::format("{} fields, but the header has {} columns", all[i].fields.size(), columns_.size()));
    rows_.push_back(std::move(all[i]));
  }
}

const CsvField* Csv::find(std::size_t row, const std::string& column) const {
  const auto found = columns_.find(column);
  return found == columns_.end() ? nullptr : &rows_[row].fields[found->second];
}

const std::string& Csv::text(std::size_t row, const std::string& column) const {
  static const std::string none;
  const CsvField* field = find(row, column);
  return field == nullptr ? none : field->text;
}

std::optional<double> Csv::number(std::size_t row, const std::string& column, double least) const {
  const CsvField* field = find(row, column);
  if (field == nullptr) return std::nullopt;
  const std::string_view text = trim(field->text);
  if (text.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < least ||
      value > 1e15)
    fail(line(row), field->column,
         fmt::format("{}: expected a number of at least {}, found \"{}\"", column, least, text.substr(0, 60)));
  return value;
}

void Csv::require(const std::vector<std::string>& columns) const {
  std::vector<std::string> missing;
  for (const std::string& column : columns)
    if (!columns_.contains(column)) missing.push_back(column);
  if (!missing.empty()) fail(header_line_, 1, "missing columns: " + join(missing, ", "));
}

}  // namespace trireme::planner
