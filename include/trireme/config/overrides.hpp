// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/config/run_config.hpp"

namespace trireme::config {

/// What `section.key=value` overrides say, with everything else at its default: for what starts before a run file is
/// read. What is wrong in them is passed over here; `load_run_file` reports it.
[[nodiscard]] RunConfig read_overrides(const std::vector<std::string>& overrides);

}  // namespace trireme::config
