// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor/probe.hpp"

#include <link.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "cli/start/with_mpi.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/io/file_system.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::cli {
namespace {

using mpi::check;
using mpi::Communicator;

std::vector<int> own_cores() {
  std::array<unsigned char, 1024> mask{};  // 8192 cores, the kernel's own bound
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < 8 * static_cast<int>(mask.size()); ++core)
    if ((mask[static_cast<std::size_t>(core / 8)] >> (core % 8) & 1U) != 0) cores.push_back(core);
  return cores;
}

/// A text of every rank, cut to the size of `Text`; by rank, on rank 0.
std::vector<std::string> gather_texts(const Communicator& world, const std::string& mine) {
  using Text = std::array<char, 256>;
  Text text{};
  std::memcpy(text.data(), mine.data(), std::min(mine.size(), text.size() - 1));
  std::vector<Text> all(world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0);
  check(MPI_Gather(text.data(), sizeof(Text), MPI_CHAR, all.data(), sizeof(Text), MPI_CHAR, 0, world.handle()),
        "gather what the ranks found");
  std::vector<std::string> texts;
  for (const Text& entry : all) texts.emplace_back(entry.data());
  return texts;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return std::string(trim(std::string_view(line).substr(line.find(':') + 1)));
  return "an unknown CPU";
}

std::string variable(const char* name) { return environment(name); }

bool writable(const std::string& directory) {
  return !directory.empty() && ::access(directory.c_str(), W_OK | X_OK) == 0;
}

}  // namespace

MpiInfo look_at_mpi(const Communicator& world) {
  const std::string library = mpi_library();
  MpiInfo info{.library = library.substr(0, library.find_first_of(",\n")),
               .thread_level_needed = MPI_THREAD_MULTIPLE,
               .ranks = world.size(),
               .launched = launched(environment)};
  check(MPI_Query_thread(&info.thread_level), "ask for MPI's thread level");
  const int here = world.node().size();
  check(MPI_Allreduce(&here, &info.fewest_ranks_on_a_node, 1, MPI_INT, MPI_MIN, world.handle()), "compare the nodes");
  check(MPI_Allreduce(&here, &info.most_ranks_on_a_node, 1, MPI_INT, MPI_MAX, world.handle()), "compare the nodes");
  info.nodes = mpi::probe_topology(world).nodes;
  return info;
}

std::vector<RankPlace> look_at_places(const Communicator& world) {
  const Communicator node = world.node();
  const std::vector<int> cores = own_cores();
  const std::array<int, 2> mine{world.rank(), static_cast<int>(cores.size())};
  std::vector<int> heads(static_cast<std::size_t>(2 * node.size()));
  check(MPI_Allgather(mine.data(), 2, MPI_INT, heads.data(), 2, MPI_INT, node.handle()), "compare the ranks' cores");
  std::vector<int> counts, offsets;
  int total = 0;
  for (int r = 0; r < node.size(); ++r) {
    counts.push_back(heads[static_cast<std::size_t>(2 * r + 1)]);
    offsets.push_back(total);
    total += counts.back();
  }
  std::vector<int> all(static_cast<std::size_t>(total));
  check(
      MPI_Allgatherv(cores.data(), mine[1], MPI_INT, all.data(), counts.data(), offsets.data(), MPI_INT, node.handle()),
      "compare the ranks' cores");
  std::vector<RankPlace> places;
  for (int r = 0; r < node.size(); ++r) {
    const auto begin = all.begin() + offsets[static_cast<std::size_t>(r)];
    places.push_back({.rank = heads[static_cast<std::size_t>(2 * r)],
                      .cores = {begin, begin + counts[static_cast<std::size_t>(r)]}});
  }
  return places;
}

std::vector<Likeness> look_at_likeness(const Communicator& world) {
  const BuildInfo& info = build_info();
  const std::vector<std::string> builds = gather_texts(
      world, std::string(info.version) + " (" + std::string(info.git_hash) + ") " + std::string(info.arch));
  const std::vector<std::string> cpus = gather_texts(world, cpu_name());
  std::vector<Likeness> ranks;
  for (std::size_t r = 0; r < builds.size(); ++r)
    ranks.push_back({.rank = static_cast<int>(r), .build = builds[r], .cpu = cpus[r]});
  return ranks;
}

CpuInfo look_at_cpu() {
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && !flags.starts_with("flags")) {
  }
  const auto has = [&](const char* flag) { return flags.find(flag) != std::string::npos; };
  return {.name = cpu_name(),
          .build_arch = std::string(build_info().arch),
          .avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0,
          .avx512 = __builtin_cpu_supports("avx512f") != 0,
          .bf16 = has("avx512_bf16") || has("amx_bf16")};
}

EnvironmentInfo look_at_environment() {
  EnvironmentInfo info{.omp_num_threads = variable("OMP_NUM_THREADS"),
                       .home = variable("HOME"),
                       .temporary = variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR"),
                       .faults_armed = fault::armed()};
  info.home_writable = writable(info.home);
  info.temporary_writable = writable(info.temporary);
  struct statvfs shared {};
  if (writable("/dev/shm") && ::statvfs("/dev/shm", &shared) == 0)
    info.shared_memory_bytes = static_cast<std::int64_t>(shared.f_bavail) * static_cast<std::int64_t>(shared.f_frsize);
  std::error_code error;
  info.directory = std::filesystem::current_path(error);
  const io::FileSystem kind = io::file_system_of(".");
  info.file_system = to_text(kind);
  info.shared = kind != io::FileSystem::local && kind != io::FileSystem::memory;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (info.locale.empty()) info.locale = variable(name);
  if (info.locale.empty()) info.locale = "C";
  return info;
}

std::vector<std::string> loaded_openmp_runtimes() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* found) {
        const std::string path = object->dlpi_name;
        const std::string file = path.substr(path.rfind('/') + 1);
        for (const char* name : {"libgomp", "libomp.", "libomp5", "libiomp"})
          if (file.starts_with(name)) static_cast<std::vector<std::string>*>(found)->push_back(path);
        return 0;
      },
      &paths);
  return paths;
}

}  // namespace trireme::cli
