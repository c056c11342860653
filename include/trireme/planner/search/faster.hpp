// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "trireme/planner/time/fit.hpp"
#include "trireme/planner/time/predict.hpp"

namespace trireme::planner {

/// One change of the run file that makes a step shorter.
struct Speedup {
  std::string line;   ///< for the run file or --set, several with commas
  double gain = 0;    ///< tokens/s over that of the run file, minus 1
  Bytes memory;       ///< of a rank, with it
  bool fits = false;  ///< fit_of()
  std::string note;   ///< reason or cost
};

/// Tries single changes of sync policy, microbatch, mesh, reduction type, recompute and offload, predicting each step.
/// Returns those that gain at least 1%, the largest gain first. `config`: complete, `sync.policy` resolved.
[[nodiscard]] std::vector<Speedup> speedups(const config::RunConfig& config, int ranks, const Machine& machine);

/// A table; empty if nothing helps.
[[nodiscard]] std::string to_text(const std::vector<Speedup>& speedups, const Machine& machine);

}  // namespace trireme::planner
