// SPDX-License-Identifier: Apache-2.0
//
// Checks of the node: CPU, GPUs, directories, rates of memory and products.
#include <fmt/format.h>

#include "cli/doctor/checks.hpp"
#include "trireme/base/units.hpp"

namespace trireme::cli {

Finding check_cpu(const CpuInfo& f) {
  Finding finding{.subject = "CPU",
                  .found = fmt::format("{}: {}{}{}; this build needs {}", f.name, f.avx2 ? "AVX2" : "no AVX2",
                                       f.avx512 ? ", AVX-512" : "", f.bf16 ? ", bf16" : "",
                                       f.build_arch.empty() ? "the compiler's default" : f.build_arch)};
  if (f.build_arch == "x86-64-v3" && !f.avx2) {
    finding.verdict = Verdict::error;
    finding.remedy = "Configure with -DTRIREME_ARCH= of an older CPU, such as x86-64-v2.";
  }
  return finding;
}

Findings check_gpus(const device::GpuProbe& probe, int node_ranks) {
  if (probe.gpus.empty()) return {{.subject = "GPUs", .found = "none: " + probe.reason}};
  Findings findings;
  for (const device::Gpu& gpu : probe.gpus) {
    findings.push_back(
        {.subject = fmt::format("GPU {}", gpu.index),
         .found = fmt::format("{} with {}, compute capability {}.{}, {} multiprocessors, at {}", gpu.name,
                              to_text(gpu.memory), gpu.major, gpu.minor, gpu.multiprocessors, gpu.bus)});
    if (gpu.major >= 8) continue;
    findings.back().verdict = Verdict::warning;
    findings.back().remedy = "Kernels are built for compute capability 8.0 and later: set device.type = \"cpu\".";
  }
  // Slurm may show each rank another one (--gpus-per-task, --gpu-bind): one GPU a rank is no mistake.
  const int gpus = static_cast<int>(probe.gpus.size());
  if (gpus > 1 && gpus != node_ranks)
    findings.push_back(
        {.verdict = Verdict::warning,
         .subject = "ranks and GPUs",
         .found = fmt::format("{} rank{} and {} GPUs on this node", node_ranks, node_ranks == 1 ? "" : "s", gpus),
         .remedy = "Start one rank per GPU (srun --ntasks-per-node=" + std::to_string(gpus) + ")."});
  return findings;
}

Findings check_speeds(const Speeds& s, int threads) {
  const std::string with = fmt::format("with {} thread{}", threads, threads == 1 ? "" : "s");
  Finding memory{
      .subject = "memory",
      .found = fmt::format("{:.1f} GB/s read and written in a copy {}", s.copy_bytes_per_second / 1e9, with)};
  Finding products{
      .subject = "matrix products",
      .found = fmt::format("{:.0f} GFLOP/s in fp32, {:.0f} in bf16 {}", s.fp32_flops / 1e9, s.bf16_flops / 1e9, with)};
  constexpr double slow_copy = 4e9;
  if (s.copy_bytes_per_second < slow_copy) {
    memory.verdict = Verdict::warning;
    memory.remedy =
        "A core of today copies 5 GB/s and more: is the node shared, swapping, or are ranks bound to one core?";
  }
  if (s.bf16_flops < s.fp32_flops) {
    products.verdict = Verdict::warning;
    products.remedy = "bf16 is slower than fp32 on this CPU: set precision.compute = \"fp32\" for speed.";
  }
  return {memory, products};
}

Findings check_environment(const EnvironmentInfo& s, int node_ranks, int nodes) {
  Findings findings;
  if (!s.omp_num_threads.empty() && (s.omp_num_threads.front() < '1' || s.omp_num_threads.front() > '9'))
    findings.push_back({.verdict = Verdict::warning,
                        .subject = "OMP_NUM_THREADS",
                        .found = fmt::format("\"{}\" is not a thread count; ignored", s.omp_num_threads),
                        .remedy = "Unset it, or set it to a number of at least 1."});
  findings.push_back({.subject = "HOME", .found = s.home.empty() ? "not set" : s.home});
  if (!s.home_writable) {
    findings.back().verdict = Verdict::warning;
    findings.back().found += s.home.empty() ? "" : " cannot be written";
    findings.back().remedy =
        "Trireme trains without it, but caches (TRIREME_CACHE, ~/.cache/trireme) need a place: set TRIREME_CACHE.";
  }
  findings.push_back({.subject = "TMPDIR", .found = s.temporary});
  if (!s.temporary_writable) {
    findings.back().verdict = Verdict::warning;
    findings.back().found += " cannot be written";
    findings.back().remedy =
        "Open MPI keeps its session there: set TMPDIR to a directory of the node that you may write to.";
  }
  const std::int64_t wanted = std::int64_t{16} * (1 << 20) * node_ranks;
  findings.push_back(
      {.subject = "/dev/shm",
       .found = s.shared_memory_bytes ? to_text(Bytes{*s.shared_memory_bytes}) + " free" : "cannot be written"});
  if (s.shared_memory_bytes.value_or(0) < wanted) {
    findings.back().verdict = Verdict::warning;
    findings.back().remedy = fmt::format(
        "Ranks of a node exchange data there, {} for {} of them; without it MPI does, slower. Containers: --shm-size.",
        to_text(Bytes{wanted}), node_ranks);
  }
  findings.push_back(
      {.subject = "working directory", .found = fmt::format("{} lies on {}", s.directory, s.file_system)});
  if (nodes > 1 && !s.shared) {
    findings.back().verdict = Verdict::warning;
    findings.back().remedy =
        "Make sure that all nodes see it: run.output and checkpoints belong on a file system of all of them.";
  }
  findings.push_back({.subject = "locale", .found = s.locale + "; numbers and messages do not depend on it"});
  if (s.faults_armed)
    findings.push_back({.verdict = Verdict::warning,
                        .subject = "TRIREME_FAULT",
                        .found = "is set: faults will be injected into runs",
                        .remedy = "Unset it for a real run."});
  return findings;
}

}  // namespace trireme::cli
