// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace trireme::schedule {

/// Of what stands between the stages of a block: forward: before a stage or after it in its forward; backward: in its
/// backward; again: what backward needs of the forward, once more; recompute: as forward, around a Recompute.
enum class Phase : std::uint8_t { forward, backward, again, recompute };

}  // namespace trireme::schedule
