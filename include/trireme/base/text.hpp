// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The items one after another with `separator` between them.
[[nodiscard]] std::string join(const std::vector<std::string>& items, std::string_view separator);

/// `text` without blanks, tabs and line ends at either side.
[[nodiscard]] std::string_view trim(std::string_view text);

/// The lines of `text` without their ends; the last one may have none.
[[nodiscard]] std::vector<std::string> lines_of(std::string_view text);

/// `text` of a file or a user for a terminal or a log: control characters (below 0x20, 0x7f, U+0080 to U+009F) and
/// bytes that are no UTF-8 as \xNN.
[[nodiscard]] std::string printable(std::string_view text);
/// The same for text of several lines: line ends and tabs stay.
[[nodiscard]] std::string printable_lines(std::string_view text);

/// `text` with the letters A to Z in lower case.
[[nodiscard]] std::string lowercase(std::string_view text);

/// True if all of `name` matches `pattern`: `*` matches
/// any run of characters (dots included), `?` exactly one.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view name);

/// The number of characters to insert, delete, replace or swap with their neighbour to turn `a` into `b`
/// (optimal string alignment distance).
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word` by edit distance (the first of equals); nothing if more than a third of the longer
/// word, or more than 4 characters, differ.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace trireme
