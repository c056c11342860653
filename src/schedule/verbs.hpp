// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "schedule/line.hpp"
#include "trireme/schedule/op.hpp"

namespace trireme::schedule {

/// The op that a line which begins with `name` says; the rest of it is in `line`. Throws ConfigError, also for a name
/// that no verb has.
[[nodiscard]] Op parse_op(std::string_view name, Line& line);

}  // namespace trireme::schedule
