// SPDX-License-Identifier: Apache-2.0
//
// Checks of MPI, the launcher, ranks per node and cores.
#include "trireme/mpi/mpi.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/doctor/checks.hpp"
#include "trireme/base/error.hpp"

namespace trireme::cli {
namespace {

const char* plural(int n) { return n == 1 ? "" : "s"; }

Finding check_ranks(const MpiInfo& f) {
  Finding finding{.subject = "ranks",
                  .found = fmt::format("{} rank{} on {} node{}", f.ranks, plural(f.ranks), f.nodes, plural(f.nodes))};
  if (f.nodes == 1) return finding;
  if (f.fewest_ranks_on_a_node == f.most_ranks_on_a_node) {
    finding.found += fmt::format(", {} on each", f.most_ranks_on_a_node);
    return finding;
  }
  finding.found += fmt::format(", {} to {} on each", f.fewest_ranks_on_a_node, f.most_ranks_on_a_node);
  finding.verdict = Verdict::warning;
  finding.remedy =
      "Fuller nodes are slower and all wait for them: give every node as many ranks (srun --ntasks-per-node).";
  return finding;
}

Finding check_threads_of_mpi(const MpiInfo& f) {
  Finding finding{.subject = "MPI threads",
                  .found = fmt::format("{}, needed {}", thread_level_name(f.thread_level),
                                       thread_level_name(f.thread_level_needed))};
  if (f.thread_level >= f.thread_level_needed) return finding;
  finding.verdict = Verdict::error;
  finding.remedy = "Use an MPI built with full thread support; Cray MPICH: MPICH_MAX_THREAD_SAFETY=multiple.";
  return finding;
}

Finding check_launcher_of(const MpiInfo& f) {
  if (!f.launched) return {.subject = "launcher", .found = "none: one rank, started alone"};
  try {
    check_launcher(f.launched, f.ranks, f.library);
  } catch (const EnvironmentError& error) {
    return {.verdict = Verdict::error, .subject = "launcher", .found = f.launched->by, .remedy = error.what()};
  }
  return {.subject = "launcher", .found = f.launched->by};
}

Finding check_binding(const mpi::Topology& t, const std::vector<RankPlace>& places, int machine_cores) {
  Finding finding{.subject = "binding"};
  const bool all_the_same =
      std::ranges::all_of(places, [&](const RankPlace& p) { return p.cores == places.front().cores; });
  if (all_the_same) {
    const auto& cores = places.front().cores;
    finding.found = fmt::format("{} may run on core{} {}",
                                places.size() == 1 ? "the rank" : fmt::format("each of {} ranks", places.size()),
                                plural(static_cast<int>(cores.size())), ranges_text(cores));
  } else {
    constexpr std::size_t most = 8;
    for (std::size_t i = 0; i < std::min(most, places.size()); ++i)
      finding.found +=
          fmt::format("{}rank {}: {}", i == 0 ? "cores of " : "; ", places[i].rank, ranges_text(places[i].cores));
    if (places.size() > most) finding.found += fmt::format("; and {} more ranks", places.size() - most);
  }
  if (t.node_cores < t.node_ranks) {
    finding.verdict = Verdict::warning;
    finding.found += fmt::format(": {} ranks share {} core{}", t.node_ranks, t.node_cores, plural(t.node_cores));
    finding.remedy = "Enough to try things out; for speed start at most a rank a core, or give the job more cores.";
  } else if (t.node_cores < machine_cores) {
    finding.verdict = Verdict::warning;
    finding.found += fmt::format(": {} of this node's {} cores", t.node_cores, machine_cores);
    finding.remedy =
        "If the node is all yours: mpirun --bind-to none, or srun --cpus-per-task. mpirun -n 2 binds each rank to one "
        "core.";
  }
  return finding;
}

}  // namespace

std::string thread_level_name(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    case MPI_THREAD_MULTIPLE: return "MPI_THREAD_MULTIPLE";
    default: return "an unknown level";
  }
}

std::string ranges_text(const std::vector<int>& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (end - i > 1) text += fmt::format("-{}", cores[end - 1]);
    i = end;
  }
  return text.empty() ? "none" : text;
}

Findings check_mpi(const MpiInfo& info) {
  return {{.subject = "MPI", .found = info.library},
          check_threads_of_mpi(info),
          check_launcher_of(info),
          check_ranks(info)};
}

Findings check_cores(const mpi::Topology& topology, const std::vector<RankPlace>& places, int machine_cores,
                     int threads) {
  Findings findings{check_binding(topology, places, machine_cores)};
  Finding finding{
      .subject = "threads",
      .found = fmt::format("{} of a rank compute; communication {}", threads,
                           topology.node_cores > topology.node_ranks ? "on separate threads"
                                                                     : "runs between them: no core is left for it")};
  const auto narrow = std::ranges::min_element(places, {}, [](const RankPlace& p) { return p.cores.size(); });
  if (narrow != places.end() && static_cast<int>(narrow->cores.size()) < threads) {
    finding.verdict = Verdict::warning;
    finding.found += fmt::format("; rank {} has {} core{} for its {}", narrow->rank, narrow->cores.size(),
                                 plural(static_cast<int>(narrow->cores.size())), threads);
    finding.remedy =
        "Give ranks as many cores as threads (mpirun --bind-to none, srun --cpus-per-task), or set device.threads or "
        "OMP_NUM_THREADS lower.";
  }
  findings.push_back(std::move(finding));
  return findings;
}

}  // namespace trireme::cli
