// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace trireme::huggingface {

/// A family that is refused, why, and the family that is nearest to it.
struct RefusedFamily {
  std::string_view model_type, reason, nearest;
};
[[nodiscard]] std::span<const RefusedFamily> refused_families();

}  // namespace trireme::huggingface
