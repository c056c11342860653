// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::cli {

/// Output of --version.
[[nodiscard]] std::string version_text();

/// This build's instructions must exist on this CPU: a clear end instead of an illegal instruction later. Throws
/// EnvironmentError.
void check_instructions();

}  // namespace trireme::cli
