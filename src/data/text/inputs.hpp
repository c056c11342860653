// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace trireme::data::text {

/// The files of `arguments`: files themselves, "-" for standard input, all files below a folder whose names do not
/// begin with a dot, matches of a shell pattern (web-*.jsonl.zst); those of one argument sorted by name. Throws
/// DataError when an argument has no files.
[[nodiscard]] std::vector<std::string> expand_inputs(const std::vector<std::string>& arguments);

}  // namespace trireme::data::text
