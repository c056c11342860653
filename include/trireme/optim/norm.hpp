// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "trireme/optim/team.hpp"

namespace trireme::optim {

/// The sum of the squares of `values` in fp64, over fixed chunks added in a fixed order: the same bits on any number of
/// threads. Not finite exactly when one of the values is not (fp32 squares cannot overflow fp64), so it doubles as the
/// check for those. Returns when it is done.
[[nodiscard]] double sum_of_squares(std::span<const float> values, const Team& team = {});

/// Factor of gradients of global L2 norm `norm`, as torch.nn.utils.clip_grad_norm_: min(1, clip / (norm
/// + 1e-6)); 1 when clip is 0 (clipping off).
[[nodiscard]] double clip_factor(double norm, double clip);

}  // namespace trireme::optim
