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
/// such that these steps are predicted as measured. shallow and deep: all alike but for the layers, and so small that
/// calls are most of their time; wide: one whose kernels take far longer than that. What would be less than nothing
/// becomes zero, or the file's largest value.
[[nodiscard]] Machine with_steps(Machine machine, const TimedStep& shallow, const TimedStep& deep,
                                 const TimedStep& wide);

/// One collective over all ranks of a link.
struct TimedCollective {
  bool reduces = false;  ///< else gathers
  double bytes = 0;      ///< of the whole buffer
  double seconds = 0;
};

/// Latency and bandwidth: least squares over the relative errors of `ring_seconds` and, where it reduces, the sum
/// beside it. collectives: of two sizes at least. Zero ranks beside this one is a mistake of the caller.
[[nodiscard]] Link fitted_link(std::span<const TimedCollective> collectives, int ranks, const Machine& machine);

/// p10 and p90 of repeated times over their median, within what a machine file may say.
[[nodiscard]] Spread spread_of(std::vector<double> over_median);

}  // namespace trireme::planner
