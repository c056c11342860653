// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/units.hpp"

namespace trireme::cli {

/// The shipped machine whose GPUs have this CUDA name. Throws ConfigError for any other GPU: another one's speed and
/// memory would determine the settings.
[[nodiscard]] std::string shipped_machine_of(std::string_view gpu, Bytes memory);

}  // namespace trireme::cli
