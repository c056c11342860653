// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/run_config.hpp"
#include "trireme/planner/time/machine.hpp"

namespace trireme::planner {

/// The machine as each of its CPU ranks has it where a node has more ranks than cores.
[[nodiscard]] Machine with_shared_cores(Machine machine, const config::RunConfig& config, int ranks);

enum class Percentile { p10, p90 };

/// The machine on a day when its links take p10 or p90 of their expected time, and compute 5% less or more.
[[nodiscard]] Machine at_percentile(Machine machine, Percentile percentile);

/// `machine` with its compute rates (products, attention, bytes of kernels) times `factor`.
[[nodiscard]] Machine with_compute_rate(Machine machine, double factor);

}  // namespace trireme::planner
