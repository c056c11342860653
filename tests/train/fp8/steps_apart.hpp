// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "support/jobs.hpp"

/// Comparisons of jobs whose operands are rounded to 8 bits.
namespace trireme::train::fp8 {

/// Distance of a step from the plain program's from the same weights, if no relevant operand is rounded the other way.
/// Losses were 2e-8 apart at most; norms, which sum many rounded gradients, 1e-5.
inline constexpr test::Deviation near_step = {.loss = 1e-6, .grad_norm = 1e-4};

/// The steps of a job without updates, so that all are of the same weights, nearest first.
[[nodiscard]] inline std::vector<test::Deviation> steps_apart(const test::Curve& curve, const test::Curve& expected) {
  std::vector<test::Deviation> out;
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    out.push_back({.loss = std::abs(curve.losses.at(i) / expected.losses[i] - 1),
                   .grad_norm = std::abs(curve.grad_norms.at(i) / expected.grad_norms[i] - 1)});
  std::ranges::sort(out, {}, &test::Deviation::grad_norm);
  return out;
}

}  // namespace trireme::train::fp8
