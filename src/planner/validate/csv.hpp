// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::planner {

/// One field of a CSV file and where it begins.
struct CsvField {
  std::string text;
  int column = 1;  ///< character of its line, from 1
};

/// A table with named columns (RFC 4180: fields can be quoted, with doubled quotes as an escape).
class Csv {
 public:
  /// `name` identifies the file in messages. Throws ConfigError with line and column: no header, a column twice, a row
  /// with another number of fields, an unterminated quote.
  Csv(std::string_view text, std::string name);

  [[nodiscard]] std::size_t rows() const { return rows_.size(); }
  [[nodiscard]] int line(std::size_t row) const { return rows_[row].line; }
  /// Empty if the column does not exist.
  [[nodiscard]] const std::string& text(std::size_t row, const std::string& column) const;
  /// Nothing if the field is empty. Throws ConfigError when it is not a finite number of at least `least`.
  [[nodiscard]] std::optional<double> number(std::size_t row, const std::string& column, double least = 0) const;
  /// Throws ConfigError naming the columns that are missing.
  void require(const std::vector<std::string>& columns) const;

 private:
  struct Row {
    int line = 0;
    std::vector<CsvField> fields;
  };
  [[noreturn]] void fail(int line, int column, const std::string& what) const;
  [[nodiscard]] const CsvField* find(std::size_t row, const std::string& column) const;

  std::string name_;
  std::map<std::string, std::size_t> columns_;
  int header_line_ = 1;
  std::vector<Row> rows_;
};

}  // namespace trireme::planner
