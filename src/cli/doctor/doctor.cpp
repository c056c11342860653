// SPDX-License-Identifier: Apache-2.0
//
// trireme doctor: checks the machine, prints the report, writes a machine file.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/commands.hpp"
#include "cli/doctor/calibrate.hpp"
#include "cli/doctor/node.hpp"
#include "cli/doctor/probe.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/libraries.hpp"
#include "cli/start/with_mpi.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/atomic_file.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/mpi/collective_try.hpp"

namespace trireme::cli {
namespace {

Finding check_kokkos_here() {
  using Space = Kokkos::DefaultHostExecutionSpace;
  return check_kokkos(fmt::format("{}.{}.{}", KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100),
                      Space::name(), Space().concurrency(), at::get_num_threads());
}

Finding check_hdf5_here() {
#ifdef H5_HAVE_PARALLEL
  constexpr bool parallel = true;
#else
  constexpr bool parallel = false;
#endif
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return check_hdf5({.compiled = fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
                     .loaded = fmt::format("{}.{}.{}", major, minor, release)},
                    parallel);
}

Findings check_libraries() {
  return {check_openmp(loaded_openmp_runtimes()),
          check_libtorch(libtorch_versions(), at::get_cpu_capability(), at::get_num_threads()), check_kokkos_here(),
          check_hdf5_here()};
}

/// Waits for rank 0 without taking its cores: it measures. Collective over `world`.
int await_verdict(const mpi::Communicator& world, int code) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibcast(&code, 1, MPI_INT, 0, world.handle(), &request), "share the verdict");
  for (int done = 0; done == 0;) {
    mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "share the verdict");
    if (done == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return code;
}

int doctor(const mpi::Communicator& world) {
  const Libraries libraries(world, 0);
  const mpi::Topology topology = mpi::probe_topology(world);
  Findings findings = check_mpi(look_at_mpi(world));
  append(findings, check_cores(topology, look_at_places(world), static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                               at::get_num_threads()));
  append(findings, check_likeness(look_at_likeness(world)));
  if (world.rank() != 0) return await_verdict(world, 0);

  append(findings, check_libraries());
  findings.push_back(check_cpu(look_at_cpu()));
  append(findings, check_gpus(device::probe_gpus(), topology.node_ranks));
  append(findings, check_environment(look_at_environment(), topology.node_ranks, topology.nodes));
  append(findings, check_speeds(measure_speeds(), at::get_num_threads()));
  const BuildInfo& info = build_info();
  fmt::print("Trireme {} ({}), {}, {} build\n\n{}", info.version, info.git_hash, info.compiler, info.build_type,
             to_text(findings));
  return await_verdict(world,
                       static_cast<int>(worst(findings) == Verdict::error ? ExitCode::environment : ExitCode::done));
}

struct DoctorArguments {
  bool measure = false;
  bool node = false;
  NodeCheckArguments check;
  std::string output = "local.toml";
};

/// Checked before the minute of measurements, so that their result is not lost.
std::string free_name(const std::string& path) {
  if (io::status_of(path).kind != io::PathKind::nothing)
    throw ConfigError(fmt::format("doctor --measure: {} exists; move it away, or name another file with -o", path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!folder.empty() && io::status_of(folder).kind != io::PathKind::directory)
    throw ConfigError(fmt::format("doctor --measure: {}: there is no directory {}", path, folder));
  return path;
}

int measure(const mpi::Communicator& world, const std::string& output) {
  const std::string path =
      mpi::on_first_rank(world, "check the name of the machine file", [&] { return free_name(output); });
  const Libraries libraries(world, 0);
  const planner::Machine machine = measure_machine(world);
  (void)mpi::on_first_rank(world, "write the machine file", [&] {
    (void)planner::parse_machine(planner::print_machine(machine), path);
    io::AtomicFile file(path);
    file.write(planner::print_machine(machine));
    file.close();
    file.publish();
    return path;
  });
  if (world.rank() == 0)
    fmt::print("{}\n{}written: {}; use it: trireme plan RUN.toml --ranks {} --machine {}\n", machine.about,
               machine.about.find("BUSY") == std::string::npos
                   ? ""
                   : "warning: these are rates of a busy machine, and plans made with them are too slow: measure again "
                     "when nothing else runs\n",
               path, world.size(), path);
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  CLI::App* command = add_command(app, "doctor");
  command->footer(
      "Exit code 0, or 5 when something is wrong that training needs. Rank 0 prints the report.\n\n"
      "Examples:\n"
      "  trireme doctor                           this machine, as one rank\n"
      "  mpirun -n 4 --bind-to none trireme doctor\n"
      "  srun -N 2 --ntasks-per-node=4 --cpus-per-task=8 trireme doctor      the nodes and the launch of a job to "
      "come\n"
      "  trireme doctor --node                    this node alone, in a second; trireme supervise runs it\n"
      "  mpirun -n 2 --bind-to none trireme doctor --measure       writes local.toml, for trireme plan --machine "
      "local.toml");
  const auto arguments = std::make_shared<DoctorArguments>();
  CLI::Option* measures = command->add_flag("--measure", arguments->measure,
                                            "Measure what these ranks can do on their CPUs, in under a minute, and "
                                            "write it as a machine file for trireme plan");
  command
      ->add_option("-o,--output", arguments->output, "With --measure: the machine file to write (default: local.toml)")
      ->needs(measures);
  CLI::Option* node = command
                          ->add_flag("--node", arguments->node,
                                     "Check this node alone, without MPI: GPUs, memory, disk, products of known bits; "
                                     "count network ports")
                          ->excludes(measures);
  command->add_option("--report", arguments->check.report, "With --node: write NODE.json to this folder")->needs(node);
  command->add_option("--name", arguments->check.name, "With --node: the node's name in the report")->needs(node);
  command
      ->add_option("--end-ranks", arguments->check.end_ranks,
                   "With --node: kill processes whose TRIREME_LIFE has this value, as trireme supervise sets it")
      ->needs(node);
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      if (arguments->node) return check_node(arguments->check);
      if (!arguments->measure) return with_mpi(doctor);
      return with_mpi([&](const mpi::Communicator& world) { return measure(world, arguments->output); });
    };
  });
}

}  // namespace trireme::cli
