// SPDX-License-Identifier: Apache-2.0
//
// trireme submit: the batch script of a run, from its run file, and sbatch.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "cli/commands.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/submit_script.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/config/load.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;

/// The executable `name` that PATH finds; "" if there is none.
std::string in_path(const std::string& name) {
  std::istringstream directories(environment("PATH"));
  for (std::string directory; std::getline(directories, directory, ':');) {
    const files::path candidate = files::path(directory.empty() ? "." : directory) / name;
    if (std::error_code error; files::is_regular_file(candidate, error) && ::access(candidate.c_str(), X_OK) == 0)
      return candidate.string();
  }
  return "";
}

/// Command that starts this program in a job: its name if PATH finds it, else its path.
std::string this_program() {
  std::error_code error;
  const files::path here = files::read_symlink("/proc/self/exe", error);
  const std::string found = in_path("trireme");
  if (error || (!found.empty() && files::equivalent(found, here, error))) return "trireme";
  return here.string();
}

void check_replaceable(const std::string& path) {
  std::error_code error;
  if (!files::exists(files::symlink_status(path, error))) return;
  if (files::is_regular_file(path, error) && is_submit_script(io::read_text(path, std::int64_t{1} << 20))) return;
  throw ConfigError(
      fmt::format("{} exists and was not written by `trireme submit`; remove it, or write another one with -o", path));
}

int submit(const SubmitArguments& arguments) {
  const config::RunConfig config = config::load_run_file(arguments.run_file, arguments.overrides);
  const std::string script = submit_script(arguments, config, this_program());
  if (arguments.dry_run) {
    fmt::print("{}", script);
    return 0;
  }
  const std::string path =
      arguments.output.empty() ? files::path(arguments.run_file).stem().string() + ".sbatch" : arguments.output;
  check_replaceable(path);
  io::replace_text(path, script);
  const std::string sbatch = in_path("sbatch");
  if (sbatch.empty())
    throw EnvironmentError(fmt::format(
        "There is no sbatch here. The job script is {}: run `sbatch {}` in this directory on the cluster", path, path));
  fmt::print("{}: written; sbatch:\n", path);
  flush_standard_output();
  ::execl(sbatch.c_str(), "sbatch", path.c_str(), nullptr);
  throw EnvironmentError(
      fmt::format("{} could not be started: {}. The job script is {}", sbatch, std::strerror(errno), path));
}

}  // namespace

void add_submit(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<SubmitArguments>();
  CLI::App* command = add_command(app, "submit");
  const auto count = whole_number(1, std::numeric_limits<int>::max() / 1024);
  command->add_option("RUN.toml", a->run_file, "The run file")->required();
  command->add_option("--nodes", a->nodes, "Nodes of the job")->required()->check(count);
  command
      ->add_option("--spares", a->spares,
                   "More nodes, which wait: after a failure the run restarts in the job without the node that failed")
      ->check(whole_number(0, std::numeric_limits<int>::max() / 1024));
  command
      ->add_option("--gpus-per-node", a->gpus_per_node,
                   "GPUs of a node, one rank each; 0: ranks on CPUs (default: of --machine)")
      ->check(whole_number(0, 1024));
  command->add_option("--machine", a->machine,
                      "Machine file, or a shipped one's name, for --gpus-per-node (default: h100)");
  command
      ->add_option("--ranks-per-node", a->ranks_per_node,
                   "Ranks of a node without GPUs (default: of the mesh, or 2, one a socket)")
      ->check(whole_number(1, 1024));
  command->add_option("--cpus-per-task", a->cpus_per_task, "Cores of a rank")->capture_default_str()->check(count);
  command->add_option("--account", a->account, "Account that the job is charged to");
  command->add_option("--partition", a->partition, "Partition of the cluster");
  command->add_option("--time", a->time, "Time limit of the job; a longer run continues in the next life of the job")
      ->capture_default_str();
  command->add_option("--modules", a->modules, "Environment modules that the job loads");
  command
      ->add_option("--option", a->options, "another option of sbatch, such as --option=--gres=gpu:4; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--set", a->overrides, "override a key of the run file: section.key=value; may be repeated")
      ->allow_extra_args(false);
  command->add_option("--try", a->try_steps, "train only the first N steps, keep nothing, and report speed and memory")
      ->check(whole_number(1, 1000));
  command->add_option("-o,--output", a->output, "The job script (default: the run file's name with .sbatch)");
  command->add_flag("--dry-run", a->dry_run, "Print the job script; write and submit nothing");
  command->footer(
      "Examples:\n"
      "  trireme submit run.toml --nodes 8 --gpus-per-node 4 --account mine\n"
      "  trireme submit run.toml --nodes 2 --dry-run              the job script, without Slurm\n\n"
      "The job saves before its time limit, when it is preempted and after failures it falls back to its last\n"
      "checkpoint; it goes back into the queue until the run is done. docs/administrators.md describes the script.");
  command->callback([&chosen, a] { chosen = [a] { return submit(*a); }; });
}

}  // namespace trireme::cli
