// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::cli {

/// The launcher's variables.
struct Launched {
  std::string by;      ///< "srun", "Open MPI's mpirun", ...
  int ranks = 1;       ///< in this step
  int rank = 0;        ///< ours among them
  int node_ranks = 0;  ///< on this node; 0: unknown
};

/// Reads a launcher's variables; `variable` returns their text, "" if unset. Absent: started without a launcher.
[[nodiscard]] std::optional<Launched> launched(const std::function<std::string(std::string_view)>& variable);

/// Throws EnvironmentError when MPI sees another number of ranks than were started, as it does when program and
/// launcher belong to different MPIs: every task would train the whole model alone, all writing the same files.
/// mpi_library: the text of MPI_Get_library_version; srun has a plugin for each family of libraries.
void check_launcher(const std::optional<Launched>& launched, int mpi_ranks, std::string_view mpi_library);

/// A warning where the ranks of a node share its cores with many others; "" where they do not.
[[nodiscard]] std::string crowded_node_warning(int node_ranks, int cores);

/// Throws EnvironmentError when srun started several tasks without PMIx for Open MPI: MPI_Init would end the
/// process with pages of advice. MPI_Get_library_version, for mpi_library, may be asked before MPI_Init.
void check_introduction(const std::optional<Launched>& launched,
                        const std::function<std::string(std::string_view)>& variable, std::string_view mpi_library);

/// Called where a check failed on all tasks alike, before the message is printed. Where this is not the first task it
/// waits for the launcher to end the process, as it does when the first task has printed and ended; under srun, which
/// may not, it ends the process with `code`. Returns where nothing else prints: on the first task, and in a shell that
/// has inherited a task's variables.
void defer_to_first_rank(const std::optional<Launched>& launched, ExitCode code);

/// Whether all tasks were started with the same command line, according to the launcher's variables.
[[nodiscard]] bool one_command_line(const std::function<std::string(std::string_view)>& variable);

/// The environment variable `name`; "" when it is not set.
[[nodiscard]] std::string environment(std::string_view name);

}  // namespace trireme::cli
