// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// Configuration of `section.key=value` overrides, all else at its default: used before the run file is
/// read. Errors in them are ignored here; `load_run_file` reports them.
[[nodiscard]] RunConfig read_overrides(const std::vector<std::string>& overrides);

}  // namespace trireme::config
