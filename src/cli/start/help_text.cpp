// SPDX-License-Identifier: Apache-2.0
#include "cli/start/help_text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "cli/start/standard_streams.hpp"

namespace trireme::cli {
namespace {

/// Column in which the description of an option or an example begins; 0 where the line has none.
std::size_t description_column(std::string_view line, std::size_t begin) {
  const std::size_t gap = line.find("  ", begin);
  if (gap == std::string_view::npos) return 0;
  const std::size_t text = line.find_first_not_of(' ', gap);
  return text == std::string_view::npos ? 0 : text;
}

bool is_command(std::string_view text) {
  constexpr std::array programs{"trireme ", "mpirun ", "srun "};
  return std::ranges::any_of(programs, [&](const char* program) { return text.starts_with(program); });
}

std::string wrap_line(std::string_view line, std::size_t columns) {
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  std::size_t indent = description_column(line, begin);
  std::size_t at = indent;  // of the text that is wrapped
  const bool command = indent == 0 && is_command(line.substr(begin));
  if (indent == 0 || indent > columns * 2 / 3) {
    at = begin;
    indent = begin + (command ? 4 : 0);
  }
  const std::string_view line_end = command ? " \\" : "";
  std::string out(line.substr(0, at));
  std::size_t width = at;
  for (bool first = true; at < line.size(); first = false) {
    const std::size_t next = std::min(line.find(' ', at), line.size());
    const std::string_view word = line.substr(at, next - at);
    if (!first && width + 1 + word.size() + line_end.size() > columns) {
      out += fmt::format("{}\n{}", line_end, std::string(indent, ' '));
      width = indent;
    } else if (!first) {
      out += ' ';
      ++width;
    }
    out += word;
    width += word.size();
    at = std::min(line.find_first_not_of(' ', next), line.size());
  }
  return out;
}

}  // namespace

int help_columns() {
  constexpr int usual = 100;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : usual;
}

std::string wrap_help(const std::string& text, int columns) {
  const auto most = static_cast<std::size_t>(std::max(columns, 1));
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += (line.size() <= most ? line : wrap_line(line, most)) + '\n';
  return out;
}

int print_help(const CLI::App& app, const CLI::Success& asked) {
  std::ostringstream text;
  const int code = app.exit(asked, text, text);
  const bool version = dynamic_cast<const CLI::CallForVersion*>(&asked) != nullptr;
  fmt::print("{}", version ? text.str() : wrap_help(text.str(), help_columns()));
  flush_standard_output();
  return code;
}

}  // namespace trireme::cli
