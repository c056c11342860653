// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/config/load.hpp"
#include "trireme/model/model.hpp"

namespace trireme::planner {

/// What `sync.policy = "auto"` came to.
struct Choice {
  config::Sync sync;   ///< with a policy that is not automatic
  std::string reason;  ///< which candidates were tried, what each needs, which was taken and why; empty when nothing
                       ///< was to be chosen
};

/// Resolves `sync.policy = "auto"`: of deferred with parameters kept until the update, deferred without reshard,
/// deferred with reshard, immediate without reshard, immediate with reshard, the first whose predicted bytes
/// (replay_memory: all but libtorch's workspace, on a GPU the head's excepted, and communication staging) fit
/// memory.budget. They are ordered by traffic, least first. Any other policy is returned as it is. Throws ConfigError
/// when none fits, with what each needs.
[[nodiscard]] Choice choose_sync(const config::RunConfig& config, const model::Model& model,
                                 const config::Resolved& mesh);

}  // namespace trireme::planner
