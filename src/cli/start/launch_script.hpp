// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace trireme::cli {

/// jobs/launch.sh, from which CMake makes the source: the part that all batch scripts share.
[[nodiscard]] std::string_view launch_script();

}  // namespace trireme::cli
