// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::mpi {
namespace {

using Cores = std::array<std::uint64_t, 128>;  // 8192 cores, the kernel's own bound

Cores own_cores() {
  Cores cores{};
  if (sched_getaffinity(0, sizeof(cores), reinterpret_cast<cpu_set_t*>(cores.data())) != 0) cores[0] = 1;
  return cores;
}

/// Hexadecimal words up to the last that is not zero.
std::string mask_text(const Cores& cores) {
  const auto end = std::find_if(cores.rbegin(), cores.rend(), [](std::uint64_t word) { return word != 0; }).base();
  return fmt::format("{:x}", fmt::join(cores.begin(), end, ","));
}

int count(const Cores& cores) {
  int n = 0;
  for (const std::uint64_t word : cores) n += std::popcount(word);
  return n;
}

std::int64_t number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

int quota_here() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // within a container or a job step: its own group
  std::string line;
  return std::getline(file, line) ? cores_of_quota(line) : 0;
}

int open_cores() {
  std::ifstream file("/sys/fs/cgroup/cpuset.cpus.effective");
  std::string line;
  if (std::getline(file, line))
    if (const int listed = cores_of_list(line); listed > 0) return listed;
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

/// Device and inode, which identify a file on a node.
std::string identity_of(const char* path) {
  struct stat status {};
  if (::stat(path, &status) != 0) return "";
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

/// Text that is equal on ranks of a node with the same view of files; unique per rank if /proc does not show it.
std::string view_text() {
  std::string text;
  for (const char* path : {"/proc/self/ns/mnt", "/proc/self/root/.", "."}) {
    const std::string identity = identity_of(path);
    if (identity.empty()) return "process " + std::to_string(::getpid());
    text += identity + " ";
  }
  return text;
}

/// Every rank's line, by rank, on every rank.
std::vector<std::string> share_lines(const Communicator& ranks, const std::string& line) {
  std::string text;
  for (const std::string& one : gather_texts(ranks, line)) text += one + "\n";
  std::istringstream stream(broadcast_text(ranks, std::move(text)));
  std::vector<std::string> lines;
  for (std::string one; std::getline(stream, one);) lines.push_back(one);
  return lines;
}

}  // namespace

FileView probe_file_view(const Communicator& world) {
  const Communicator node = world.node();
  const std::vector<std::string> views = share_lines(node, view_text());
  const std::string& mine = views.at(static_cast<std::size_t>(node.rank()));
  const bool of_first_node = broadcast_text(node, world.rank() == 0 ? "first" : "") == "first";
  return {.place = static_cast<int>(std::count(views.begin(), views.begin() + node.rank(), mine)),
          .ranks = static_cast<int>(std::count(views.begin(), views.end(), mine)),
          .of_first_rank = of_first_node && mine == views.front()};
}

std::string hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

int cores_of_quota(std::string_view cpu_max) {
  const std::size_t blank = cpu_max.find(' ');
  if (blank == std::string_view::npos) return 0;
  const std::int64_t quota = number(cpu_max.substr(0, blank));
  const std::int64_t period = number(cpu_max.substr(blank + 1));
  return quota > 0 && period > 0 ? static_cast<int>(std::max<std::int64_t>(1, quota / period)) : 0;
}

int cores_of_list(std::string_view list) {
  int cores = 0;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), range.size() + 1));
    if (range.empty()) continue;
    const std::size_t dash = range.find('-');
    const std::int64_t first = number(range);
    const std::int64_t last = dash == std::string_view::npos ? first : number(range.substr(dash + 1));
    cores += static_cast<int>(std::max<std::int64_t>(0, last - first + 1));
  }
  return cores;
}

Topology probe_topology(const Communicator& world) {
  Topology topology{.host = hostname()};
  const Communicator node = world.node();
  topology.node_rank = node.rank();
  topology.node_ranks = node.size();
  const int leader = node.rank() == 0 ? 1 : 0;
  check(MPI_Allreduce(&leader, &topology.nodes, 1, MPI_INT, MPI_SUM, world.handle()), "count the nodes");

  const Cores mine = own_cores();
  Cores all{};
  check(MPI_Allreduce(mine.data(), all.data(), static_cast<int>(all.size()), MPI_UINT64_T, MPI_BOR, node.handle()),
        "join the affinities of this node's ranks");
  topology.rank_cores = count(mine);
  const std::vector<std::string> masks = share_lines(node, mask_text(mine));
  topology.mask_ranks = static_cast<int>(std::ranges::count(masks, masks.at(static_cast<std::size_t>(node.rank()))));
  topology.node_cores = count(all);
  topology.open_cores = std::max(topology.node_cores, open_cores());
  if (const int quota = quota_here(); quota > 0) topology.node_cores = std::min(topology.node_cores, quota);
  return topology;
}

int threads_for_rank(const Topology& topology, std::int64_t device_threads, std::string_view omp_num_threads) {
  if (device_threads > 0) return static_cast<int>(device_threads);
  if (const std::int64_t given = number(omp_num_threads); given > 0) {
    const std::int64_t most = std::max<std::int64_t>(1024, 4L * topology.node_cores);
    if (given > most)
      throw EnvironmentError(
          fmt::format("OMP_NUM_THREADS = {}, but {} has {} cores: at most {} threads a rank are "
                      "started. Set it to a rank's share of the cores, or unset it.",
                      given, topology.host, topology.node_cores, most));
    return static_cast<int>(given);
  }
  return std::max(1, topology.node_cores / topology.node_ranks);
}

}  // namespace trireme::mpi
