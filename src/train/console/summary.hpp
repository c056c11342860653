// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/config/run_config.hpp"

namespace trireme::train {

/// Steps, tokens and losses of this process.
class RunTotals {
 public:
  /// loss: nothing if the step has none (skipped, no targets).
  void add_step(double seconds, double tokens, std::optional<double> loss);
  void add_evaluation(double loss) { evaluated_ = loss; }

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// "trained 1000 steps in 16 min 04 s: loss 5.5912 to 1.6523, validation 1.7012, 4.1M tokens at 12.3k tokens/s", one
  /// line. wall_seconds: with evaluations and saves; tokens/s: of the steps alone.
  [[nodiscard]] std::string text(double wall_seconds) const;

 private:
  std::int64_t steps_ = 0;
  double seconds_ = 0, tokens_ = 0;
  std::optional<double> first_, last_, evaluated_;
};

/// The best checkpoint of a finished run that is at `step`, and the commands for its outputs: generate, evaluate,
/// report. Reads run.output and the directory of checkpoints; omits unreadable parts with a warning.
[[nodiscard]] std::string next_commands(const config::RunConfig& config, std::int64_t step);

}  // namespace trireme::train
