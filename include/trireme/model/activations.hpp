// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "trireme/base/units.hpp"
#include "trireme/model/model.hpp"

namespace trireme::model {

/// Bytes that a stage saves for its backward, for a microbatch of `tokens` (B*T) tokens. Equal to what `nn/` saves, to
/// the byte. attention: x, q, k, v, the attention's output; rstd and the log-sum-exp of every head in fp32. mlp: x,
/// gate, up; rstd in fp32. head: x.
[[nodiscard]] Bytes saved_bytes(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute);

}  // namespace trireme::model
