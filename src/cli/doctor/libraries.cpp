// SPDX-License-Identifier: Apache-2.0
//
// Checks of the libraries: versions, threads, whether all ranks have the same.
#include <fmt/format.h>

#include "cli/doctor/checks.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

/// "1.10.8", with the loaded version if it differs.
std::string text(const Versions& v) {
  return v.compiled == v.loaded ? v.loaded : fmt::format("compiled with {}, loaded is {}", v.compiled, v.loaded);
}

/// "2.11" of "2.11.0".
std::string series(const std::string& version) { return version.substr(0, version.find('.', version.find('.') + 1)); }

}  // namespace

Finding check_openmp(const std::vector<std::string>& runtimes) {
  Finding finding{.subject = "OpenMP", .found = runtimes.empty() ? "no runtime is loaded" : join(runtimes, ", ")};
  if (runtimes.size() == 1) return finding;
  finding.verdict = runtimes.empty() ? Verdict::warning : Verdict::error;
  finding.remedy =
      runtimes.empty()
          ? "Everything runs on one thread: libtorch or Kokkos were built without OpenMP."
          : "libtorch and Kokkos must share one OpenMP runtime, or their threads compete for the cores. Look "
            "for the other with ldd, LD_PRELOAD and LD_LIBRARY_PATH.";
  return finding;
}

Finding check_libtorch(const Versions& versions, const std::string& capability, int threads) {
  Finding finding{.subject = "libtorch",
                  .found = fmt::format("{}, kernels for {}, {} thread{}", text(versions), capability, threads,
                                       threads == 1 ? "" : "s")};
  if (versions.loaded == versions.compiled) return finding;
  finding.verdict = Verdict::error;
  finding.remedy = "libtorch keeps no binary interface between versions: correct LD_LIBRARY_PATH, or build again.";
  return finding;
}

Finding check_kokkos(const std::string& version, const std::string& space, int concurrency, int threads) {
  Finding finding{
      .subject = "Kokkos",
      .found = fmt::format("{}, {} with {} thread{}", version, space, concurrency, concurrency == 1 ? "" : "s")};
  if (concurrency == threads) return finding;
  finding.verdict = Verdict::warning;
  finding.found += fmt::format(", where libtorch has {}", threads);
  finding.remedy = "Kokkos must be built with OpenMP and take its threads from Trireme: unset KOKKOS_NUM_THREADS.";
  return finding;
}

Finding check_hdf5(const Versions& versions, bool parallel) {
  Finding finding{.subject = "HDF5", .found = fmt::format("{}, {}", text(versions), parallel ? "parallel" : "serial")};
  if (series(versions.compiled) != series(versions.loaded)) {
    finding.verdict = Verdict::error;
    finding.remedy = "HDF5 refuses to run with other headers than its own: correct LD_LIBRARY_PATH, or build again.";
  } else if (versions.compiled != versions.loaded) {
    finding.verdict = Verdict::warning;
    finding.remedy = "Releases of one series mostly agree; build again to be sure.";
  }
  return finding;
}

Findings check_likeness(const std::vector<Likeness>& ranks) {
  Findings findings;
  const auto differing = [&](std::string Likeness::*member) {
    for (const Likeness& rank : ranks)
      if (rank.*member != ranks.front().*member) return &rank;
    return static_cast<const Likeness*>(nullptr);
  };
  if (const Likeness* other = differing(&Likeness::build))
    findings.push_back({.verdict = Verdict::error,
                        .subject = "same program",
                        .found = fmt::format("rank {} runs {}, rank {} runs {}", ranks.front().rank,
                                             ranks.front().build, other->rank, other->build),
                        .remedy = "Start the same trireme on all nodes: one on a file system that all see."});
  if (const Likeness* other = differing(&Likeness::cpu))
    findings.push_back({.verdict = Verdict::warning,
                        .subject = "same CPU",
                        .found = fmt::format("rank {} has {}, rank {} has {}", ranks.front().rank, ranks.front().cpu,
                                             other->rank, other->cpu),
                        .remedy = "The slowest sets the pace, and a run repeats bit for bit on the same kinds of nodes "
                                  "only: ask for one kind (srun --constraint)."});
  return findings;
}

}  // namespace trireme::cli
