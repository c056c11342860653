// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/planner/replay.hpp"

/// Reports the largest buffers of a rank, and settings of the run file that reduce them.
namespace trireme::planner {

/// One change and its effect on this run. Bytes are of one rank, traffic of one rank and step.
struct Remedy {
  std::string line;       ///< for the run file or --set: `memory.recompute = "block"`
  Bytes saves;            ///< always positive
  Bytes more_traffic;     ///< negative where it moves less
  Bytes more_copies;      ///< between device and host
  Bytes more_host;        ///< in host memory
  double more_flops = 0;  ///< as a part of the step's: 0.33 for a whole forward again
  std::string note;       ///< other costs
  bool fits = false;      ///< with this change alone memory.budget holds; false without a budget
};

struct Advice {
  Memory memory;                 ///< as the run file is
  std::optional<Bytes> budget;   ///< memory.budget
  std::vector<Remedy> remedies;  ///< the largest saving first; those under 1% of the total are left out
  /// With mesh.context > 1: the other context.method where a rank sends fewer bytes in a step with it.
  struct LessTraffic {
    std::string line;
    Bytes bytes;  ///< fewer
  };
  std::optional<LessTraffic> less_traffic{};
  std::optional<Bytes>
      least;  ///< with one sequence a microbatch and all remedies that keep the ranks; set if these were tried
};

/// Tries every remedy that this version of Trireme has by replaying the step with it: a smaller microbatch, reduction
/// and reshard policies, recompute, offload, bf16, more ranks, tensor parallelism. Remedies that the run file's other
/// keys rule out are left out. `config`: complete, `sync.policy` resolved.
[[nodiscard]] Advice advise(const config::RunConfig& config, int ranks);

/// The configuration with some keys changed; nothing if they do not go with the others, or do not exist yet.
[[nodiscard]] std::optional<config::RunConfig> changed(const config::RunConfig& config,
                                                       const std::vector<std::string>& overrides);

/// A diagnosis ("activations are 84% of it") and a table of the remedies; empty if nothing helps.
[[nodiscard]] std::string to_text(const Advice& advice);

}  // namespace trireme::planner
