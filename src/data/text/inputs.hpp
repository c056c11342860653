// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace trireme::data::text {

/// The files that `arguments` name: files themselves, "-" for standard input, all files in a folder and below it whose
/// names do not begin with a dot, what a pattern of the shell (web-*.jsonl.zst) matches; those of one argument sorted
/// by name. Throws DataError when an argument gives none.
[[nodiscard]] std::vector<std::string> expand_inputs(const std::vector<std::string>& arguments);

}  // namespace trireme::data::text
