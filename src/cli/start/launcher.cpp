// SPDX-License-Identifier: Apache-2.0
#include "cli/start/launcher.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace trireme::cli {
namespace {

constexpr const char* srun = "srun";

struct Variables {
  const char* by;
  const char* ranks;
  const char* rank;
  const char* node_ranks = "";
};

// A launcher that was itself started by srun leaves srun's variables in place: srun comes last.
constexpr std::array<Variables, 4> known{
    {{"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"MVAPICH's launcher", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
     {"a PMI launcher such as MPICH's mpiexec", "PMI_SIZE", "PMI_RANK"},
     {srun, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}}};

// The PMI plugin of srun for an MPI library in its usual build.
std::string_view plugin_of(std::string_view mpi_library) {
  for (const std::string_view family : {"MPICH", "Intel(R) MPI", "MVAPICH"})
    if (mpi_library.find(family) != std::string_view::npos) return "pmi2";
  return "pmix";
}

}  // namespace

std::optional<Launched> launched(const std::function<std::string(std::string_view)>& variable) {
  for (const Variables& v : known) {
    const int ranks = std::atoi(variable(v.ranks).c_str());
    if (ranks > 0)
      return Launched{.by = v.by,
                      .ranks = ranks,
                      .rank = std::atoi(variable(v.rank).c_str()),
                      .node_ranks = std::atoi(variable(v.node_ranks).c_str())};
  }
  return std::nullopt;
}

void check_launcher(const std::optional<Launched>& launched, int mpi_ranks, std::string_view mpi_library) {
  if (!launched || launched->ranks == mpi_ranks) return;
  throw EnvironmentError(fmt::format(
      "{} started {} tasks, but MPI sees {} rank{}: the launcher and the MPI that trireme was built with do "
      "not match. Start it with that MPI's own mpirun, or with srun --mpi={} (srun "
      "--mpi=list shows what there is).",
      launched->by, launched->ranks, mpi_ranks, mpi_ranks == 1 ? "" : "s", plugin_of(mpi_library)));
}

std::string crowded_node_warning(int node_ranks, int cores) {
  constexpr int many = 4;  // of a core: tests and first steps share cores
  if (cores < 1 || node_ranks <= many * cores) return "";
  return fmt::format(
      "{} ranks share the {} core{} of this node: the start takes {} times as long as with a core for "
      "each, steps as well; start at most {} ranks a node",
      node_ranks, cores, cores == 1 ? "" : "s", (node_ranks + cores - 1) / cores, cores);
}

void check_introduction(const std::optional<Launched>& launched,
                        const std::function<std::string(std::string_view)>& variable, std::string_view mpi_library) {
  if (!launched || launched->by != srun || launched->ranks == 1 || !mpi_library.starts_with("Open MPI")) return;
  for (const char* told : {"PMIX_RANK", "PMI_RANK", "PMI_FD"})
    if (!variable(told).empty()) return;
  defer_to_first_rank(launched, ExitCode::environment);
  throw EnvironmentError(
      fmt::format("srun started {} tasks without PMIx support for Open MPI. Use srun --mpi=pmix (srun "
                  "--mpi=list shows "
                  "the available types), or Open MPI's mpirun.",
                  launched->ranks));
}

void defer_to_first_rank(const std::optional<Launched>& launched, ExitCode code) {
  if (!launched || launched->rank == 0) return;
  std::this_thread::sleep_for(std::chrono::seconds(5));
  // Still here. Slurm may leave the tasks of a step alone when the first one fails; else there is no first one.
  std::string parent;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", ::getppid())), parent);
  if (parent.starts_with("slurmstepd")) std::exit(static_cast<int>(code));
}

bool one_command_line(const std::function<std::string(std::string_view)>& variable) {
  const std::string contexts = variable("OMPI_NUM_APP_CTX");  // mpirun A : B has two
  return contexts.empty() || contexts == "1";
}

std::string environment(std::string_view name) {
  const char* text = std::getenv(std::string(name).c_str());
  return text == nullptr ? "" : text;
}

}  // namespace trireme::cli
