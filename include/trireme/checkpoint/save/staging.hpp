// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/base/units.hpp"
#include "trireme/checkpoint/save/save.hpp"

namespace trireme::checkpoint {

/// A copy in host memory of one rank's state: it is written while the original keeps changing. Allocated once and
/// used again for every save.
class Staging {
 public:
  /// Allocates memory of the size of `shards`, charged to `other` on the host. ranks_on_node: number of ranks that do
  /// the same on this node. Throws EnvironmentError when the system does not have it in addition to the difference
  /// between the process's peak and current use, which training needs again.
  Staging(const Shards& shards, int ranks_on_node);

  /// Copies `shards`, of the same model and mesh as those it was made for. From the compute thread: uses its team.
  void copy(const Shards& shards);
  /// The copy; this object outlives it. like: the copied shards.
  [[nodiscard]] Shards shards(const Shards& like) const;

 private:
  int blocks_ = 0;
  std::vector<at::Tensor> copies_;  ///< [quantity * blocks_ + block]
};

/// Bytes of a rank's copy.
[[nodiscard]] Bytes staging_bytes(const Shards& shards);

/// Bytes that a process can still allocate on this node: the kernel's available memory, limited by the cgroup. Very
/// large if neither is known.
[[nodiscard]] Bytes available_host_memory();

}  // namespace trireme::checkpoint
