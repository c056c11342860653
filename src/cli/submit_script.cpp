// SPDX-License-Identifier: Apache-2.0
#include "cli/submit_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "cli/start/launch_script.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/shell_word.hpp"
#include "trireme/config/load.hpp"

namespace trireme::cli {
namespace {

constexpr std::string_view first_lines = "#!/usr/bin/env bash\n# Written by `trireme submit";
constexpr int ranks_of_a_cpu_node = 2;  // one a socket

/// A value between double quotes of a script, as the default of a variable.
std::string quotable(std::string_view what, const std::string& value) {
  if (value.find_first_of("\"$`\\}\n") == std::string::npos) return value;
  throw ConfigError(
      fmt::format("submit: {} {} cannot be written into a job script: \", $, `, \\, }} and line ends are "
                  "not possible; put it into the run file, or rename the file",
                  what, value));
}

/// A word of an #SBATCH line.
std::string word(std::string_view what, const std::string& value) {
  if (!value.empty() && std::ranges::none_of(value, [](unsigned char c) { return std::isspace(c) != 0; })) return value;
  throw ConfigError(fmt::format("submit: {} \"{}\" is not one word", what, value));
}

std::string settings(const std::vector<std::string>& overrides) {
  std::string text;
  for (const std::string& one : overrides) {
    if (one.find_first_of(" \t*?[") != std::string::npos)
      throw ConfigError(
          fmt::format("submit: --set {}: blanks and patterns cannot be passed on; put it into the run file", one));
    text += (text.empty() ? "" : " ") + quotable("--set", one);
  }
  return text;
}

std::string job_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-') c = '-';
  return name.empty() ? "trireme" : name;
}

/// GPUs of a node in the job; 0: the ranks compute on CPUs.
int gpus_of_node(const SubmitArguments& arguments, const config::RunConfig& config) {
  if (arguments.gpus_per_node) return *arguments.gpus_per_node;
  if (config.device.type == config::DeviceType::cpu) return 0;
  const planner::Machine machine =
      arguments.machine.empty() ? planner::machine_of("GPU", Bytes{}) : planner::load_machine(arguments.machine);
  return machine.gpus.empty() ? 0 : static_cast<int>(machine.gpus_per_node);
}

/// Ranks of a node: that of the mesh if the run file fixes all of it, else one per GPU.
int ranks_of_node(const SubmitArguments& arguments, const config::RunConfig& config, int gpus) {
  const int most = gpus > 0 ? gpus : arguments.ranks_per_node.value_or(ranks_of_a_cpu_node);
  const config::Mesh& mesh = config.mesh;
  if (mesh.shard < 0) return most;
  const std::int64_t ranks = mesh.replicate * mesh.shard * mesh.tensor * mesh.context * mesh.pipeline;
  if (ranks % arguments.nodes == 0 && (ranks / arguments.nodes <= most || (gpus == 0 && !arguments.ranks_per_node)))
    return static_cast<int>(ranks / arguments.nodes);
  throw ConfigError(
      fmt::format("submit: the mesh of {} has {} ranks, which {} nodes of {} ranks do not hold evenly; "
                  "give --nodes {}, or leave out mesh.shard, which then takes all ranks",
                  arguments.run_file, ranks, arguments.nodes, most, std::max<std::int64_t>(1, ranks / most)));
}

std::string directives(const SubmitArguments& arguments, const config::RunConfig& config, int ranks, int gpus) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("#SBATCH --{}={}\n", name, word(name, value));
  };
  add("job-name", job_name(config.run.name));
  add("nodes", std::to_string(arguments.nodes + arguments.spares));
  add("ntasks-per-node", std::to_string(ranks));
  if (gpus > 0) add("gpus-per-node", std::to_string(gpus));
  add("cpus-per-task", std::to_string(arguments.cpus_per_task));
  add("mem", "0");
  add("time", arguments.time);
  if (!arguments.account.empty()) add("account", arguments.account);
  if (!arguments.partition.empty()) add("partition", arguments.partition);
  if (arguments.nodes + arguments.spares > 1) text += "#SBATCH --exclusive\n";
  if (arguments.spares > 0) text += "#SBATCH --no-kill\n";
  text += "#SBATCH --signal=B:USR1@300\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output=%x-%j.out\n";
  for (const std::string& option : arguments.options) text += fmt::format("#SBATCH {}\n", word("--option", option));
  return text;
}

}  // namespace

std::string submit_script(const SubmitArguments& arguments, const config::RunConfig& config,
                          const std::string& program) {
  const int gpus = gpus_of_node(arguments, config);
  const int ranks = ranks_of_node(arguments, config, gpus);
  (void)config::resolve(config, arguments.nodes * ranks);  // the errors of train on this many ranks
  std::string text =
      fmt::format("{} {} --nodes {}`: {} ranks.\n", first_lines, quotable("the run file", arguments.run_file),
                  arguments.nodes, arguments.nodes * ranks);
  text += directives(arguments, config, ranks, gpus);
  text +=
      "# 300 s before the limit (--signal) the ranks save, and the job goes back into the queue; a save must fit into "
      "that time.\n"
      "# --mem=0: all memory of a node. A site that counts GPUs as generic resources takes --gres=gpu:N in the place "
      "of\n"
      "# --gpus-per-node=N.\n\n";
  const auto variable = [&text](std::string_view name, const std::string& value, std::string_view meaning) {
    text += fmt::format("{:<30} # {}\n", fmt::format(": \"${{{}:={}}}\"", name, quotable(name, value)), meaning);
  };
  variable("RUN", arguments.run_file, "the run file");
  variable("SETTINGS", settings(arguments.overrides), "more settings: \"train.steps=2000 optimizer.lr=3e-4\"");
  variable("CHECKPOINTS", config.checkpoint.directory, "where the run file has its checkpoints");
  variable("MODULES", arguments.modules, "environment modules to load, such as \"trireme\"");
  variable("TRIREME", program, "the program");
  variable("MPI_PLUGIN", "", "srun's --mpi=; empty: pmix, or pmi2 (MPICH)");
  variable("REQUEUE", arguments.try_steps > 0 ? "no" : "yes", "no: a job that saved ends with exit code 75");
  variable("FAILURES_TOO", arguments.try_steps > 0 ? "no" : "yes", "no: a job that broke stays ended");
  if (arguments.spares > 0)
    variable("SPARES", std::to_string(arguments.spares), "nodes of the job that wait for another one's failure");
  text += fmt::format(": \"${{SRUN_OPTIONS:=--cpu-bind=cores --mem-bind=local {}--distribution=block:cyclic}}\"\n\n",
                      gpus > 0 ? "--gpu-bind=none " : "");
  text += launch_script();
  text += fmt::format("\ntrain --set device.type={}{}\n", gpus > 0 ? "cuda" : "cpu",
                      arguments.try_steps > 0 ? fmt::format(" --try {}", arguments.try_steps) : "");
  return text;
}

bool is_submit_script(const std::string& text) { return text.starts_with(first_lines); }

std::string start_command(const std::string& run_file, int ranks, const planner::Machine& machine, int try_steps,
                          const std::vector<std::string>& overrides) {
  std::string options = try_steps > 0 ? fmt::format(" --try {}", try_steps) : "";
  for (const std::string& one : overrides) options += " --set " + shell_word(one);
  int node = std::max(1, static_cast<int>(machine.gpus_per_node));
  if (machine.gpus.empty() || ranks <= node)
    return fmt::format("mpirun {}-n {} trireme train {}{}",
                       machine.cores > 0 && machine.cores < ranks ? "--oversubscribe " : "", ranks,
                       shell_word(run_file), options);
  while (ranks % node != 0) --node;  // all nodes have as many ranks
  return fmt::format("trireme submit {} --nodes {} --gpus-per-node {}{}", shell_word(run_file), ranks / node, node,
                     options);
}

}  // namespace trireme::cli
