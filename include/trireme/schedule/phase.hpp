// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::schedule {

/// The phase of an exchange. forward: around a Forward; recompute: the same around a Recompute; backward: around a
/// Backward; again: repeats an exchange of forward for backward.
enum class Phase : std::uint8_t { forward, backward, again, recompute };

}  // namespace trireme::schedule
