// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// What `section.key=value` overrides say, with everything else at its default: for what starts before a run file is
/// read. Errors in them are ignored here; `load_run_file` reports them.
[[nodiscard]] RunConfig read_overrides(const std::vector<std::string>& overrides);

}  // namespace trireme::config
