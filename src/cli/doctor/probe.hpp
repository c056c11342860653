// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/doctor/checks.hpp"
#include "trireme/mpi/communicator.hpp"

/// Probes the machine for `trireme doctor`.
namespace trireme::cli {

/// Collective over `world`.
[[nodiscard]] MpiInfo look_at_mpi(const mpi::Communicator& world);
/// This node's ranks and the cores of each, on every rank. Collective over `world`.
[[nodiscard]] std::vector<RankPlace> look_at_places(const mpi::Communicator& world);
/// One entry a rank, on rank 0. Collective over `world`.
[[nodiscard]] std::vector<Likeness> look_at_likeness(const mpi::Communicator& world);

[[nodiscard]] CpuInfo look_at_cpu();
[[nodiscard]] EnvironmentInfo look_at_environment();
/// Paths of the OpenMP runtimes loaded in this process.
[[nodiscard]] std::vector<std::string> loaded_openmp_runtimes();
[[nodiscard]] Versions libtorch_versions();
/// Takes about a second of this rank, whose threads should have their cores for themselves.
[[nodiscard]] Speeds measure_speeds();

}  // namespace trireme::cli
