// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/finding.hpp"
#include "cli/start/launcher.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/mpi/topology.hpp"

/// The checks of `trireme doctor`: each turns probed values into findings, so that it can be tested without a faulty
/// machine.
namespace trireme::cli {

/// Cores and memory of one rank of this node.
struct RankPlace {
  int rank = 0;
  std::vector<int> cores;  ///< that it may run on
};

/// Reports of MPI and the launcher.
struct MpiInfo {
  std::string library;  ///< "Open MPI v4.1.4"
  int thread_level = 0;
  int thread_level_needed = 0;
  int ranks = 1;
  int nodes = 1;
  int fewest_ranks_on_a_node = 1;
  int most_ranks_on_a_node = 1;
  std::optional<Launched> launched;
};
[[nodiscard]] Findings check_mpi(const MpiInfo& info);

/// places: this node's ranks. machine_cores: all cores of the node. threads: of a rank.
[[nodiscard]] Findings check_cores(const mpi::Topology& topology, const std::vector<RankPlace>& places,
                                   int machine_cores, int threads);

/// The thread level by name.
[[nodiscard]] std::string thread_level_name(int level);
/// "0-3,8": cores as lists of ranges.
[[nodiscard]] std::string ranges_text(const std::vector<int>& cores);

/// Versions of a library: at compile time and at run time.
struct Versions {
  std::string compiled;
  std::string loaded;
};
/// openmp_runtimes: paths of the OpenMP runtimes in this process.
[[nodiscard]] Finding check_openmp(const std::vector<std::string>& openmp_runtimes);
[[nodiscard]] Finding check_libtorch(const Versions& versions, const std::string& capability, int threads);
[[nodiscard]] Finding check_kokkos(const std::string& version, const std::string& space, int concurrency, int threads);
[[nodiscard]] Finding check_hdf5(const Versions& versions, bool parallel);

/// Instructions of the CPU that matter here.
struct CpuInfo {
  std::string name;
  std::string build_arch;  ///< -march of this build; empty: the compiler's default
  bool avx2 = false;
  bool avx512 = false;
  bool bf16 = false;  ///< AVX-512 or AMX
};
[[nodiscard]] Finding check_cpu(const CpuInfo& info);

/// This node's GPUs as one rank sees them.
[[nodiscard]] Findings check_gpus(const device::GpuProbe& probe, int node_ranks);

/// Measured on one rank with its threads.
struct Speeds {
  double copy_bytes_per_second = 0;  ///< read and written
  double fp32_flops = 0;
  double bf16_flops = 0;
};
[[nodiscard]] Findings check_speeds(const Speeds& speeds, int threads);

/// One rank's machine and program, to be compared over the ranks.
struct Likeness {
  int rank = 0;
  std::string build;  ///< version, commit and flags
  std::string cpu;
};
[[nodiscard]] Findings check_likeness(const std::vector<Likeness>& ranks);

/// Environment of the process.
struct EnvironmentInfo {
  std::string omp_num_threads;
  std::string home;
  bool home_writable = false;
  std::string temporary;  ///< TMPDIR, or /tmp
  bool temporary_writable = false;
  std::optional<std::int64_t> shared_memory_bytes;  ///< free in /dev/shm
  std::string directory;                            ///< the working directory, and its file system
  std::string file_system;
  bool shared = true;  ///< other nodes see it, too
  std::string locale;
  bool faults_armed = false;
};
[[nodiscard]] Findings check_environment(const EnvironmentInfo& info, int node_ranks, int nodes);

}  // namespace trireme::cli
