// SPDX-License-Identifier: Apache-2.0
#include "train/setup/host_memory.hpp"

#include <fmt/format.h>

#include "trireme/base/error.hpp"

namespace trireme::train {

void check_host_memory(const planner::Memory& memory, int node_ranks, Bytes available) {
  const Bytes of_rank = memory.host.total() - memory.host.other;  // a save without room for its copy waits for the disk
  const Bytes needed{of_rank.value * node_ranks};
  if (needed <= available) return;
  throw EnvironmentError(fmt::format(
      "offload keeps {} of a rank in page-locked host memory, {} for the {} rank{} of this node, but the node has {} "
      "left. Offload less (memory.offload, memory.offload_fraction, memory.activation_offload), or use more nodes.",
      to_text(of_rank), to_text(needed), node_ranks, node_ranks == 1 ? "" : "s", to_text(available)));
}

}  // namespace trireme::train
