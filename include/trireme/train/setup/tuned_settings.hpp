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

/// Takes the saved choices again as far as this machine can, on all ranks alike. Collective over `world`; nothing
/// multiplies meanwhile. threads: of this job. Returns what stays different, a line each.
[[nodiscard]] std::vector<std::string> restore_tuned_settings(const mpi::Communicator& world,
                                                              const checkpoint::Metadata& saved, int threads);

/// The policy that the run in the newest checkpoint that `checkpoint.resume` leads to was trained with, when
/// `sync.policy` is auto and what it was chosen by (mesh, batch, budget) is the same; nothing otherwise. On one rank.
[[nodiscard]] std::optional<config::Sync> saved_policy(const config::RunConfig& config, const config::Resolved& mesh);

}  // namespace trireme::train
