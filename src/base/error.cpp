// SPDX-License-Identifier: Apache-2.0
#include "trireme/base/error.hpp"

#include <fmt/core.h>

namespace trireme {

void invariant(bool holds, std::string_view what, std::source_location where) {
  if (holds) return;
  throw BugError(fmt::format("a bug in Trireme, please report it: {} ({}:{}, {})", what, where.file_name(),
                             where.line(), where.function_name()));
}

void Mistakes::raise(std::string_view heading) const {
  if (messages_.empty()) return;
  std::string text(heading);
  for (const std::string& message : messages_) text += "\n  " + message;
  throw ConfigError(text);
}

}  // namespace trireme
