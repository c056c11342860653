// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::huggingface {

/// Throws CheckpointError listing the mistakes, one a line, under `heading`, the last ones only counted where there are
/// many; does nothing when there is none.
void raise(const Mistakes& mistakes, std::string_view heading);

}  // namespace trireme::huggingface
