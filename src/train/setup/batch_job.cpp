// SPDX-License-Identifier: Apache-2.0
#include "train/setup/batch_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace trireme::train {
namespace {

std::int64_t number(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

std::string environment_variable(std::string_view name) {
  const char* text = std::getenv(std::string(name).c_str());
  return text == nullptr ? "" : text;
}

BatchJob batch_job(const Variable& variable) {
  BatchJob job{.id = variable("SLURM_JOB_ID"),
               .array = variable("SLURM_ARRAY_JOB_ID"),
               .nodes = variable("SLURM_JOB_NODELIST"),
               .restart_count = number(variable("SLURM_RESTART_COUNT")),
               .node_cores = number(variable("SLURM_CPUS_ON_NODE"))};
  const std::string task = variable("SLURM_ARRAY_TASK_ID");
  job.array = job.array.empty() || task.empty() ? "" : job.array + "_" + task;
  return job;
}

std::string to_text(const BatchJob& job) {
  if (job.id.empty()) return "";
  std::string text = "Slurm " + job.id;
  if (!job.array.empty()) text += " (" + job.array + ")";
  if (!job.nodes.empty()) text += " on " + job.nodes;
  if (job.restart_count > 0) text += fmt::format(", restart {}", job.restart_count);
  return text;
}

std::string too_few_cores(const BatchJob& job, const mpi::Topology& topology, int threads) {
  const auto shortage = [&](int ranks, std::int64_t cores, std::string_view have, std::string_view where = "") {
    const std::int64_t needed = std::int64_t{threads} * ranks;
    if (cores >= needed) return std::string();
    return fmt::format("{}: {} rank{} of {} thread{} need {} cores, {} {}{}, so that they take turns. ", topology.host,
                       ranks, ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", needed, have, cores, where);
  };
  std::int64_t cores = topology.node_cores;
  if (!job.id.empty()) {
    if (job.node_cores > 0) cores = std::min(cores, job.node_cores);
    const std::string text = shortage(topology.node_ranks, cores, "the job has", " there");
    if (!text.empty())
      return text + fmt::format(
                        "Ask Slurm for --cpus-per-task={} (srun needs it, too: SRUN_CPUS_PER_TASK), or for "
                        "fewer --ntasks-per-node, or set device.threads.",
                        threads);
  }
  if (topology.node_cores < topology.open_cores)
    if (const std::string text = shortage(topology.mask_ranks, topology.rank_cores, "their affinity mask has");
        !text.empty())
      return text + fmt::format(
                        "The node has {}. Bind each rank to separate cores (mpirun --map-by slot:PE=N "
                        "--bind-to core, srun --cpu-bind=cores), or set device.threads.",
                        topology.open_cores);
  if (threads == 1) return "";  // more ranks than cores: only a launcher with oversubscription starts them
  const std::string text = shortage(topology.node_ranks, cores, "the node gives them");
  if (text.empty()) return "";
  const std::int64_t most = cores / std::max(1, topology.node_ranks);
  return text + fmt::format("Set device.threads (or OMP_NUM_THREADS) to {}, or start fewer ranks.",
                            most > 1 ? fmt::format("at most {}", most) : "1");
}

}  // namespace trireme::train
