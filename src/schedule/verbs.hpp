// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "schedule/line.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// Parses an op: `name` is the first word of its line, `line`
/// the rest. Throws ConfigError, also for unknown names.
[[nodiscard]] Op parse_op(std::string_view name, Line& line);

}  // namespace trireme::schedule
