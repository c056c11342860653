// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace trireme::config {

/// A line per key: section.key, default, (type); below it the meaning, wrapped to `columns`. section: only its keys;
/// "": all. What `trireme train --help` shows.
[[nodiscard]] std::string explain_options(int columns, std::string_view section);

}  // namespace trireme::config
