// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trireme::log {

enum class Level { debug, info, warning, error };

/// Destination of log lines. The default writes warnings and errors to standard error; `cli` installs the real one.
/// Any thread may log; a sink is called by one thread at a time and must not log itself.
using Sink = std::function<void(Level, std::string_view)>;

/// Replaces the sink (an empty one: by the default) and returns the previous one.
Sink set_sink(Sink sink);

void debug(std::string_view line);
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

}  // namespace trireme::log
