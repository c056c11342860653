// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::cli {

/// What the program that started us says.
struct Launched {
  std::string by;  ///< "srun", "Open MPI's mpirun", ...
  int ranks = 1;   ///< in this step
  int rank = 0;    ///< ours among them
};

/// Looks for a launcher's variables; `variable` gives their text, "" where there is none. Absent: started alone.
[[nodiscard]] std::optional<Launched> launched(const std::function<std::string(std::string_view)>& variable);

/// Throws EnvironmentError when MPI sees another number of ranks than were started, as it does when program and
/// launcher belong to different MPIs: every task would train the whole model alone, all writing the same files.
void check_launcher(const std::optional<Launched>& launched, int mpi_ranks);

/// The environment variable `name`; "" when it is not set.
[[nodiscard]] std::string environment(std::string_view name);

}  // namespace trireme::cli
