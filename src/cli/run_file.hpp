// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/start/train_arguments.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::cli {

/// The run file that all ranks were started with, on rank 0; elsewhere its values are not used. Where the command
/// lines agree, one rank a node reads the file. Collective over `world`. Throws on one rank, while the others wait for
/// the end: a rank's own mistake, or ConfigError naming the values that differ between two ranks.
[[nodiscard]] config::RunConfig agree_on_run_file(const mpi::Communicator& world, const RunFileArguments& arguments);

/// "data.seq_len = 64 on rank 1, 32 on rank 0", a key each.
[[nodiscard]] std::vector<std::string> differing_keys(const config::RunConfig& first, int first_rank,
                                                      const config::RunConfig& other, int other_rank);

}  // namespace trireme::cli
