// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/config/load.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/planner/time/machine.hpp"

/// Whether a run's buffers fit a machine's GPUs and the host memory of its nodes.
namespace trireme::planner {

/// Limit for a rank's buffers: memory.budget, else 90% of the GPU's memory. The rest is for uncounted memory: the CUDA
/// context, NCCL's buffers, libtorch's workspace.
[[nodiscard]] Bytes memory_limit(const config::RunConfig& config, const Machine& machine);

/// Limit for the buffers of a node's ranks in its host memory: 90%. The rest is for the operating system, the page
/// cache and other memory of the processes. Nothing if the machine file does not state the node's memory.
[[nodiscard]] std::optional<Bytes> host_memory_limit(const Machine& machine);

/// Buffers of a node's ranks in host memory.
struct NodeMemory {
  int ranks = 0;
  Bytes bytes;
  Bytes copies;  ///< of these, for checkpoint.async
};
/// Host memory of the node whose ranks hold the most; CPU ranks hold all buffers there. `memory`: predict_memory().
[[nodiscard]] NodeMemory host_memory_of_node(const Memory& memory, const config::Resolved& mesh,
                                             const Machine& machine);

/// Whether memory is within both limits.
struct Fit {
  bool device = false, host = false;
  [[nodiscard]] bool both() const { return device && host; }
};
[[nodiscard]] Fit fit_of(const config::RunConfig& config, const Memory& memory, const config::Resolved& mesh,
                         const Machine& machine);

}  // namespace trireme::planner
