// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "trireme/config/run_config.hpp"
#include "trireme/planner/time/machine.hpp"

/// A machine file's numbers from times that were measured.
namespace trireme::planner {

/// A step of one CPU rank.
struct TimedStep {
  config::RunConfig config;
  double seconds = 0;
};

/// `machine`, which has products, attention and the host's memory, with host.layer_ms, host.step_ms and gpu.memory_tb_s
/// fitted so that these steps are predicted as measured. shallow and deep: equal except for the layers, and so small
/// that launches take most of their time; wide: one whose kernels take far longer than launches. Negative results
/// become zero, or the file's largest value.
[[nodiscard]] Machine with_steps(Machine machine, const TimedStep& shallow, const TimedStep& deep,
                                 const TimedStep& wide);

/// One collective over all ranks of a link.
struct TimedCollective {
  bool reduces = false;  ///< else gathers
  double bytes = 0;      ///< of the whole buffer
  double seconds = 0;
};

/// Latency and bandwidth: least squares over the relative errors of `ring_seconds`, plus the local sum of reductions.
/// collectives: of two sizes at least. ranks: at least 2.
[[nodiscard]] Link fitted_link(std::span<const TimedCollective> collectives, int ranks, const Machine& machine);

/// p10 and p90 of repeated times over their median, within the range of machine files.
[[nodiscard]] Spread spread_of(std::vector<double> over_median);

}  // namespace trireme::planner
