// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "trireme/checkpoint/manifest.hpp"
#include "trireme/config/load.hpp"
#include "trireme/mpi/communicator.hpp"

/// Settings measured or chosen by a run that its bits depend on: written into checkpoints and used by a resumed run,
/// so that a restart repeats bit for bit.
namespace trireme::train {

/// The choices in force: the libraries that multiply (`kernels::gemm_choice`), CPU type, threads of a rank.
[[nodiscard]] checkpoint::Metadata current_tuned_settings(int threads);

/// Restores the saved choices if this machine supports them, equally on all ranks. Collective over `world`; not during
/// matrix products. threads: of this job. Returns the remaining differences, a line each.
[[nodiscard]] std::vector<std::string> restore_tuned_settings(const mpi::Communicator& world,
                                                              const checkpoint::Metadata& saved, int threads);

/// The policy with which the run of the newest checkpoint for `checkpoint.resume` was trained, if `sync.policy` is auto
/// and its inputs (mesh, batch, budget) are unchanged; otherwise nothing. On one rank.
[[nodiscard]] std::optional<config::Sync> saved_policy(const config::RunConfig& config, const config::Resolved& mesh);

}  // namespace trireme::train
