// SPDX-License-Identifier: Apache-2.0
#include "cli/supervise/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/base/text.hpp"

namespace trireme::cli {
namespace {

/// Options by which a user would place ranks; the supervisor does.
bool places_ranks(std::string_view word) {
  constexpr std::array<std::string_view, 13> options{
      "-n",         "-np",           "-N",     "-w", "-x", "--nodes", "--ntasks", "--nodelist", "--exclude",
      "--hostfile", "--machinefile", "--host", "-H"};
  return std::ranges::any_of(options, [&](std::string_view option) {
    return word == option || (option.starts_with("--") && word.starts_with(std::string(option) + "="));
  });
}

int number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : 0;
}

Words without(const Words& all, const Words& some) {
  Words rest;
  std::ranges::copy_if(all, std::back_inserter(rest),
                       [&](const std::string& one) { return std::ranges::find(some, one) == some.end(); });
  return rest;
}

void append_all(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

/// srun's selection of `nodes`. --overlap: CPUs of a step that is still completing can be used.
void select_nodes(Words& words, const Allocation& all, const Words& nodes, int ranks_per_node) {
  append_all(words, {fmt::format("--nodes={}", nodes.size()),
                     fmt::format("--ntasks={}", nodes.size() * static_cast<std::size_t>(ranks_per_node)),
                     fmt::format("--ntasks-per-node={}", ranks_per_node), "--overlap", "--no-kill"});
  if (const Words others = without(all.nodes, nodes); !others.empty())
    words.push_back("--exclude=" + join(others, ","));
}

}  // namespace

LaunchCommand parse_launch(const Words& command) {
  if (command.empty())
    throw ConfigError(
        "supervise: no command; allowed: trireme supervise --spares 1 -- srun [OPTIONS] trireme train RUN.toml, or "
        "mpirun with --hostfile FILE before the --");
  const std::string launcher = std::filesystem::path(command.front()).filename();
  LaunchCommand found;
  if (launcher == "mpirun" || launcher == "mpiexec")
    found.launcher = LaunchCommand::Launcher::mpirun;
  else if (launcher != "srun")
    throw ConfigError(fmt::format("supervise: {} is no launcher that it can restart; allowed: srun, mpirun, mpiexec",
                                  command.front()));
  const auto train = std::ranges::find(command, "train");
  if (train == command.end() || train - command.begin() < 2)
    throw ConfigError("supervise: the command does not start `trireme train`; other commands are not restarted");
  auto program = std::find(command.begin(), train, "--");
  found.options.assign(command.begin(), program == train ? train - 1 : program);
  program = program == train ? train - 1 : program + 1;
  found.program.assign(program, train);
  found.arguments.assign(train, command.end());
  if (found.program.empty())
    throw ConfigError("supervise: there is no program between the launcher's options and `train`");
  for (const std::string& word : found.options)
    if (places_ranks(word) && !(word == "-x" && found.launcher == LaunchCommand::Launcher::mpirun))
      throw ConfigError(
          fmt::format("supervise: {} cannot be given: the supervisor selects nodes and ranks itself. Remove it; nodes "
                      "come from the "
                      "Slurm job or from --hostfile",
                      word));
  return found;
}

int ranks_per_node(const std::function<std::string(std::string_view)>& variable, int nodes) {
  const int tasks = number(variable("SLURM_NTASKS"));
  if (const int each = number(variable("SLURM_NTASKS_PER_NODE")); each > 0) return each;
  if (tasks > 0 && nodes > 0 && tasks % nodes == 0) return tasks / nodes;
  throw EnvironmentError(fmt::format(
      "supervise: the job has {} tasks on {} nodes; give --ntasks-per-node to sbatch, spares included in --nodes",
      variable("SLURM_NTASKS").empty() ? "an unknown number of" : variable("SLURM_NTASKS"), nodes));
}

Allocation parse_host_file(const std::string& text, const std::string& path) {
  Allocation found{.ranks_per_node = 0};
  std::istringstream lines(text);
  int line_number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++line_number;
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string name;
    if (!(words >> name)) continue;
    int slots = 1;
    for (std::string word; words >> word;) {
      if (!word.starts_with("slots=") || number(word.substr(6)) < 1)
        throw ConfigError(fmt::format("{}:{}: \"{}\" is not understood; allowed: NAME slots=RANKS", path, line_number,
                                      printable(word)));
      slots = number(word.substr(6));
    }
    if (std::ranges::find(found.nodes, name) != found.nodes.end())
      throw ConfigError(fmt::format("{}:{}: {} is given twice", path, line_number, printable(name)));
    if (found.ranks_per_node != 0 && slots != found.ranks_per_node)
      throw ConfigError(fmt::format("{}:{}: {} has {} slots, hosts before it {}; give all as many", path, line_number,
                                    printable(name), slots, found.ranks_per_node));
    found.nodes.push_back(name);
    found.ranks_per_node = slots;
  }
  if (found.nodes.empty()) throw ConfigError(fmt::format("{}: has no hosts; write lines NAME slots=RANKS", path));
  return found;
}

std::string host_file(const Words& nodes, int ranks_per_node) {
  std::string text;
  for (const std::string& node : nodes) text += fmt::format("{} slots={}\n", node, ranks_per_node);
  return text;
}

Words train_command(const LaunchCommand& command, const Allocation& all, const Words& nodes, const std::string& hosts) {
  Words words = command.options;
  if (command.launcher == LaunchCommand::Launcher::srun) {
    select_nodes(words, all, nodes, all.ranks_per_node);
    words.emplace_back("--");
  } else {
    append_all(words, {"-np", std::to_string(nodes.size() * static_cast<std::size_t>(all.ranks_per_node)), "--hostfile",
                       hosts, "-x", "TRIREME_LIFE", "-x", "TRIREME_REPLACE_STRAGGLERS"});
  }
  append_all(words, command.program);
  append_all(words, command.arguments);
  return words;
}

Words check_command(const LaunchCommand& command, const Allocation& all, const Words& nodes, const std::string& hosts,
                    const Words& arguments) {
  Words words;
  if (command.launcher == LaunchCommand::Launcher::srun) {
    words.push_back(command.options.front());
    select_nodes(words, all, nodes, 1);
    append_all(words, {"--cpus-per-task=1", "--mem=0", "--mpi=none", "--kill-on-bad-exit=0", "--wait=5", "--quiet"});
    words.emplace_back("--");
  } else {
    words = command.options;
    append_all(words, {"-np", "1", "--hostfile", hosts});
  }
  append_all(words, command.program);
  append_all(words, {"doctor", "--node"});
  append_all(words, arguments);
  return words;
}

}  // namespace trireme::cli
