// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace trireme::optimizer {

/// Losses and gradient norms (before clipping) of the last steps, skipped ones among them; non-finite ones left out.
/// The rule is that of OLMo-core's SkipStepOptimizer. Equal on every rank.
struct SpikeWindow {
  static constexpr std::size_t most = 128;    ///< steps
  static constexpr std::size_t least = 64;    ///< steps before which nothing is a spike
  static constexpr double most_distance = 6;  ///< standard deviations

  std::vector<double> losses, grad_norms;  ///< of the same steps, oldest first

  /// Distance of a step from the mean, in standard deviations of the window (divisor n - 1): the larger one of loss and
  /// norm. Infinite where equal values are followed by a higher one. Nothing in the first `least` steps and where the
  /// step is not finite.
  [[nodiscard]] std::optional<double> score(double loss, double grad_norm) const;
  /// Whether the score is above `most_distance`.
  [[nodiscard]] bool is_spike(double loss, double grad_norm) const;
  /// Adds a step, and removes the oldest one where there are more than `most`. Steps that are not finite are left out.
  void add(double loss, double grad_norm);

  friend bool operator==(const SpikeWindow&, const SpikeWindow&) = default;
};

}  // namespace trireme::optimizer
