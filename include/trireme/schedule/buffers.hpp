// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "trireme/model/model.hpp"
#include "trireme/schedule/op.hpp"

/// Memory needs of a schedule: rings of buffers, copies, and state in host memory.
namespace trireme::schedule {

/// The ring of each parameter block: blocks whose parameters have the same shapes share one.
[[nodiscard]] std::vector<int> rings(const model::Model& model);

/// The group size that a schedule's reshards keep copies in, and whether it leaves partial gradients: extra buffers it
/// needs.
[[nodiscard]] std::optional<int> reshard_group(const Schedule& schedule);
[[nodiscard]] bool has_partial(const Schedule& schedule);

/// State of a parameter block in host memory: nothing; its masters, moments and reduced gradients; or these and its
/// shards.
enum class OnHost { nothing, optimizer, parameters };
/// By parameter block, according to the schedule's uploads.
[[nodiscard]] std::vector<OnHost> on_host(const Schedule& schedule, const model::Model& model);

/// By parameter block, whether its gradient shard has memory only from its first reduction to its update.
[[nodiscard]] std::vector<bool> transient_gradients(const Schedule& schedule, const model::Model& model);

/// Buffers in each ring that the schedule uses, by ring: for parameters, for gradients, and for shards on their way
/// from and to the host.
struct RingSizes {
  std::vector<int> parameters;
  std::vector<int> gradients;
  std::vector<int> uploads{};
  std::vector<int> downloads{};
  int sends = 0, receives = 0;  ///< of the residual stream, between pipeline ranks
};
[[nodiscard]] RingSizes ring_sizes(const Schedule& schedule, const model::Model& model);

}  // namespace trireme::schedule
