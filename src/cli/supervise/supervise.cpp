// SPDX-License-Identifier: Apache-2.0
//
// trireme supervise: restarts a run within its allocation, on healthy nodes.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/numbers.hpp"
#include "cli/start/train_arguments.hpp"
#include "cli/supervise/child.hpp"
#include "cli/supervise/evidence.hpp"
#include "cli/supervise/launch.hpp"
#include "cli/supervise/nodes.hpp"
#include "cli/supervise/restarts.hpp"
#include "cli/supervise/scratch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/entries.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/process.hpp"
#include "trireme/base/standard_error.hpp"
#include "trireme/base/text.hpp"
#include "trireme/base/unix_time.hpp"
#include "trireme/config/load.hpp"
#include "trireme/huggingface/complete_model.hpp"
#include "trireme/model/model.hpp"
#include "trireme/report/goodput.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;

constexpr int look_milliseconds = 20;
constexpr double progress_seconds = 0.5;  // between looks at metrics.jsonl, until the first step
constexpr double grace_seconds = 3;       // of a launcher, from the first sign of a failure to its end
constexpr double check_seconds = 20;      // until a node that does not answer counts as lost

struct SuperviseArguments {
  int spares = 0;
  std::string host_file;
  int restarts_without_progress = 3;
  bool exclude_stragglers = false;
};

report::LastStep written_steps(const std::string& output) { return report::last_step(output + "/metrics.jsonl"); }

std::string output_of(const std::string& command) {
  std::string text;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 4096> bytes{};
  while (pipe && std::fgets(bytes.data(), bytes.size(), pipe.get()) != nullptr) text += bytes.data();
  return text;
}

Allocation slurm_allocation() {
  if (environment("SLURM_JOB_NODELIST").empty())
    throw EnvironmentError("supervise: srun is restarted within a Slurm job only: use it in a batch script or salloc");
  Allocation found;
  std::istringstream names(output_of("scontrol show hostnames \"$SLURM_JOB_NODELIST\""));
  for (std::string name; names >> name;) found.nodes.push_back(name);
  if (found.nodes.empty())
    throw EnvironmentError("supervise: scontrol show hostnames did not list the nodes of the job");
  found.ranks_per_node = ranks_per_node(environment, static_cast<int>(found.nodes.size()));
  return found;
}

/// The run file of `train ARGUMENTS`, with its settings.
config::RunConfig run_file_of(const Words& arguments) {
  CLI::App app{"", "trireme"};
  TrainArguments train;
  app.require_subcommand(1);
  add_train_command(app, train);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& mistake) {
    throw ConfigError(fmt::format("supervise: {}: {}", join(arguments, " "), mistake.what()));
  }
  return config::load_run_file(train.run_file.path, train.run_file.overrides);
}

/// Seconds that a save may take: the estimate of a run that has not saved yet, 20 s and 10 ns a byte.
double save_seconds(const config::RunConfig& config, int ranks) {
  double bytes = 0;
  if (huggingface::completes(config)) {
    const config::RunConfig complete = huggingface::complete_model(config);
    bytes = 12 * static_cast<double>(model::build(complete.model).elements()) / ranks;
  }
  return std::max(20 + 1e-8 * bytes, config.train.stop_before_limit_seconds.value_or(0));
}

class Supervisor {
 public:
  Supervisor(const SuperviseArguments& arguments, const Words& words)
      : command_(parse_launch(words)),
        config_(run_file_of(command_.arguments)),
        history_(arguments.restarts_without_progress),
        exclude_stragglers_(arguments.exclude_stragglers) {
    if (command_.launcher == LaunchCommand::Launcher::srun) {
      if (!arguments.host_file.empty())
        throw ConfigError("supervise: --hostfile is for mpirun; srun runs on the nodes of the Slurm job");
      all_ = slurm_allocation();
    } else {
      if (arguments.host_file.empty()) throw ConfigError("supervise: mpirun requires --hostfile FILE before the --");
      all_ = parse_host_file(io::read_text(arguments.host_file, std::int64_t{1} << 24), arguments.host_file);
    }
    wanted_ = static_cast<int>(all_.nodes.size()) - arguments.spares;
    if (wanted_ < 1)
      throw ConfigError(fmt::format("supervise: --spares {} leaves none of {} nodes for the run; request more nodes",
                                    arguments.spares, all_.nodes.size()));
    (void)config::resolve(config_, wanted_ * all_.ranks_per_node);
    for (const std::string& name : all_.nodes) nodes_.push_back({.name = name});
    sigset_t set;
    ::sigemptyset(&set);
    for (const int number : supervised_signals()) ::sigaddset(&set, number);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = io::Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    id_ = fmt::format("{}-{}-{}", environment("SLURM_JOB_ID").empty() ? "host" : environment("SLURM_JOB_ID"),
                      ::getpid(), process_start(::getpid()));
    scratch_.emplace(config_.run.output, id_, environment("SLURM_JOB_ID"));
    used_.assign(all_.nodes.begin(), all_.nodes.begin() + wanted_);
    goodput_before_ = goodput();
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int run() {
    if (const int signal = check_nodes(-1, {}); signal != 0) return stopped(signal);
    if (!select_nodes()) return static_cast<int>(ExitCode::environment);
    for (int life = 0;; ++life) {
      if (life > 0) record({.kind = report::GoodputEvent::Kind::restart, .time = unix_seconds()});
      const Ended ended = start(life);
      const bool replaces = ended.code == static_cast<int>(ExitCode::requeue) && !ended.evidence.stragglers().empty();
      if (told_ || (!replaces && !is_restartable(ended))) return finished(ended.code);
      if (const std::optional<int> code = replaces ? replace(life, ended) : recover(life, ended)) {
        record({.kind = report::GoodputEvent::Kind::end, .time = unix_seconds()});
        return finished(*code);
      }
    }
  }

 private:
  struct Ended {
    int code = 0;
    Evidence evidence;
  };

  /// Appends to the run's record of goodput. A failure is a warning.
  void record(const report::GoodputEvent& event) const try {
    report::append_goodput_event(config_.run.output, event);
  } catch (const Error& error) {
    log::warning(fmt::format("goodput: {}", error.what()));
  }

  /// Goodput of all attempts of the run; nothing, after a warning, if the record cannot be read.
  [[nodiscard]] std::optional<report::Goodput> goodput() const try {
    return report::read_goodput(config_.run.output);
  } catch (const Error& error) {
    log::warning(fmt::format("goodput: {}", error.what()));
    return std::nullopt;
  }

  /// Logs the goodput of the run, unless all its ranks ended before they trained. Returns `code`.
  [[nodiscard]] int finished(int code) const {
    const std::optional<report::Goodput> now = goodput();
    if (now && (!goodput_before_ || now->total() != goodput_before_->total()))
      log::info("goodput " + report::to_text(*now));
    return code;
  }

  static bool is_restartable(const Ended& ended) {
    return is_restartable_code(ended.code) || (ended.code != 0 && !ended.evidence.nodes().empty());
  }

  /// Writes `nodes` as a host file; its path.
  std::string hosts_of(const std::string& name, const Words& nodes) const {
    if (command_.launcher == LaunchCommand::Launcher::srun) return "";
    const std::string path = scratch_->folder("") + "/" + name;
    io::replace_text(path, host_file(nodes, all_.ranks_per_node));
    return path;
  }

  /// Trains until the launcher ends. A launcher that does not end after a failure, because it waits for a lost node, is
  /// ended.
  Ended start(int life) {
    launched_ = unix_seconds();
    Ended ended;
    Child child(train_command(command_, all_, used_, hosts_of("hosts", used_)),
                {{"TRIREME_LIFE", life_of(life)}, {"TRIREME_REPLACE_STRAGGLERS", replaces_stragglers() ? "1" : "0"}},
                false);
    std::string partial;
    std::optional<double> failed_at;
    bool runs = false;
    double next_look = 0;
    for (;;) {
      const std::optional<int> code = child.poll();
      wait_for(child.errors());
      pass_errors(child.errors(), partial, ended.evidence);
      if (code) {
        if (!runs) (void)report_start(life);
        ended.code = *code;
        return ended;
      }
      if (const int signal = taken_signal(); signal != 0) forward(child, signal);
      if (!runs && unix_seconds() > next_look) {
        runs = report_start(life);
        next_look = unix_seconds() + progress_seconds;
      }
      if (!failed_at && ended.evidence.failed()) failed_at = unix_seconds();
      if (failed_at && unix_seconds() - *failed_at > grace_seconds) {
        log::warning(fmt::format("the launcher still waits {:.0f} s after the failure: ending it", grace_seconds));
        child.end();
        pass_errors(child.errors(), partial, ended.evidence);
        ended.code = static_cast<int>(ExitCode::hang);
        return ended;
      }
    }
  }

  void wait_for(int errors) const {
    std::array<pollfd, 2> waits{pollfd{.fd = signals_.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = errors, .events = POLLIN, .revents = 0}};
    (void)::poll(waits.data(), waits.size(), look_milliseconds);
    // A closed pipe is always ready.
    if ((waits[1].revents & POLLIN) == 0 && (waits[1].revents & POLLHUP) != 0) ::usleep(1000 * look_milliseconds);
  }

  /// Passes standard error of the launcher on, and looks at its lines.
  static void pass_errors(int errors, std::string& partial, Evidence& evidence) {
    std::array<char, 16384> bytes{};
    for (ssize_t got = 0; (got = ::read(errors, bytes.data(), bytes.size())) > 0;) {
      const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
      write_to_standard_error(text);
      partial += text;
      for (std::size_t end = 0; (end = partial.find('\n')) != std::string::npos; partial.erase(0, end + 1))
        evidence.look(std::string_view(partial).substr(0, end));
    }
  }

  /// The next signal; 0: none.
  int taken_signal() const {
    signalfd_siginfo info{};
    return ::read(signals_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
  }

  /// Asks the ranks to save and stop. SIGTERM would end srun and mpirun at once; a second SIGINT or SIGTERM does.
  void forward(const Child& child, int signal) {
    const bool ends = signal == SIGINT || signal == SIGTERM;
    child.signal(told_ && ends && told_by_ == signal ? SIGTERM : SIGUSR1);
    told_ = true;
    told_by_ = signal;
  }

  /// Logs the time from the failure to the end of the first step after it. Returns whether there was such a step.
  bool report_start(int life) {
    const report::LastStep now = written_steps(config_.run.output);
    if (now.time <= launched_) return false;  // a row of an earlier life
    start_seconds_ = std::max(start_seconds_, now.time - launched_);
    if (life > 0)
      log::info(fmt::format(
          "restart {}: step {} ended {:.1f} s after the last step before the failure: detection {:.1f} s, check of the "
          "nodes {:.1f} s, start, load and step {:.1f} s",
          life, now.step, now.time - failed_at_, detected_ - failed_at_, launched_ - detected_, now.time - launched_));
    return true;
  }

  /// Whether ranks should stop for the replacement of a slow node: there is a healthy spare that no failure and no
  /// slowness was attributed to.
  bool replaces_stragglers() const {
    return exclude_stragglers_ && std::ranges::any_of(nodes_, [&](const Node& node) {
             return node.healthy() && node.named == 0 && std::ranges::find(used_, node.name) == used_.end();
           });
  }

  /// Prepares the start after `life`, whose ranks saved and stopped because of slow nodes; the exit code if there is
  /// none.
  std::optional<int> replace(int life, const Ended& ended) {
    detected_ = unix_seconds();
    failed_at_ = std::max(written_steps(config_.run.output).time, launched_);
    const std::set<std::string>& slow = ended.evidence.stragglers();
    log::warning(fmt::format("replacing node {}: its steps took longer than those of the others",
                             node_list({slow.begin(), slow.end()})));
    if (const int signal = check_nodes(life, {}); signal != 0) return stopped(signal);
    name(slow, life);
    return prepare_start(life, ended.code);
  }

  /// Prepares the start after `life`; the exit code if there is none.
  std::optional<int> recover(int life, const Ended& ended) {
    const report::LastStep written = written_steps(config_.run.output);
    failed_at_ = std::max(written.time, launched_);
    detected_ = unix_seconds();
    record({.kind = report::GoodputEvent::Kind::failure,
            .time = detected_,
            .step = written.step,
            .began = launched_,
            .step_time = written.time > launched_ ? written.time : 0});
    log::warning(fmt::format("the ranks ended with exit code {} after step {}{}", ended.code, written.step,
                             ended.evidence.line().empty() ? "" : ": " + printable(ended.evidence.line())));
    const std::map<std::string, std::int64_t> kills_before = oom_kills_;
    if (const int signal = check_nodes(life, ended.evidence.nodes()); signal != 0) return stopped(signal);
    const bool out_of_memory =
        ended.evidence.out_of_memory() || std::ranges::any_of(used_, [&](const std::string& node) {
          const auto before = kills_before.find(node);
          const auto now = std::as_const(oom_kills_).find(node);
          return before != kills_before.end() && now != oom_kills_.end() && now->second > before->second;
        });
    if (const auto reason = history_.add({ended.code, written.step, out_of_memory})) {
      log::error("no restart: " + *reason);
      return ended.code;
    }
    if (!out_of_memory) name(ended.evidence.nodes(), life);
    return prepare_start(life, ended.code);
  }

  /// Selects the nodes of the start after `life`; `code` if there is none.
  std::optional<int> prepare_start(int life, int code) {
    if (!select_nodes()) return code;
    const std::string end_of_job = environment("SLURM_JOB_END_TIME");
    if (!end_of_job.empty() &&
        !fits_before(std::strtod(end_of_job.c_str(), nullptr), unix_seconds(), start_seconds_,
                     save_seconds(config_, static_cast<int>(used_.size()) * all_.ranks_per_node))) {
      log::error("no restart: a start, a step and a save do not fit into the time that the job has left");
      return code;
    }
    if (const int signal = taken_signal(); signal != 0) return stopped(signal);
    log::info(fmt::format("restart {} on {}", life + 1, node_list(used_)));
    return std::nullopt;
  }

  static int stopped(int signal) {
    log::info(fmt::format("signal {} while the run restarts: nothing new is saved", signal));
    return 128 + signal;
  }

  void name(const std::set<std::string>& names, int life) {
    for (Node& node : nodes_)
      if (names.contains(node.name)) {
        ++node.named;
        node.last_named = life + 1;
      }
  }

  /// Sets the nodes of the next start. Returns false, with an error line, if there are too few.
  bool select_nodes() {
    for (const Node& node : nodes_)
      if (!node.healthy()) log::warning(fmt::format("node {} is not used: {}", node.name, node.problem));
    Words chosen = choose_nodes(nodes_, wanted_, used_);
    const std::size_t found = chosen.size();
    while (!chosen.empty() && chosen.size() < static_cast<std::size_t>(wanted_) &&
           !divides(static_cast<int>(chosen.size())))
      chosen = choose_nodes(nodes_, static_cast<int>(chosen.size()) - 1, used_);
    if (chosen.empty()) {
      log::error(fmt::format("no restart: {} of {} nodes are healthy, {} are needed{}", found, nodes_.size(), wanted_,
                             found == 0 ? "" : ", and the mesh or the batch does not fit fewer ranks"));
      return false;
    }
    if (chosen.size() < static_cast<std::size_t>(wanted_))
      log::warning(fmt::format("{} healthy nodes are left: continuing with {} ranks in the place of {}", found,
                               chosen.size() * static_cast<std::size_t>(all_.ranks_per_node),
                               wanted_ * all_.ranks_per_node));
    used_ = std::move(chosen);
    return true;
  }

  /// Health check of all nodes, which also ends leftover ranks of `life`. Nodes in `named` are checked by launchers of
  /// their own, so that a lost one does not delay the others. Returns the signal that stopped it, or 0.
  int check_nodes(int life, const std::set<std::string>& named) {
    const double begin = unix_seconds();
    const std::string folder = scratch_->folder(fmt::format("check-{}", life + 1));
    std::vector<Words> groups;
    const bool slurm = command_.launcher == LaunchCommand::Launcher::srun;
    if (slurm) groups.emplace_back();
    for (const Node& node : nodes_)
      if (slurm && !named.contains(node.name))
        groups.front().push_back(node.name);
      else
        groups.push_back({node.name});
    std::vector<Child> checks;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].empty()) continue;
      Words arguments{"--report", folder, "--end-ranks", life_of(life)};
      if (!slurm) arguments.insert(arguments.end(), {"--name", groups[i].front()});
      checks.emplace_back(
          check_command(command_, all_, groups[i], hosts_of(fmt::format("hosts-{}", i), groups[i]), arguments),
          EnvironmentVariables{}, true);
    }
    std::vector<NodeReport> reports;
    const double deadline = begin + check_seconds + 0.01 * static_cast<double>(nodes_.size());
    int signal = 0;
    for (bool over = false; !over;) {
      ::usleep(1000 * look_milliseconds);
      over = unix_seconds() > deadline;
      bool all_ended = true;
      for (Child& check : checks) {
        std::array<char, 4096> unread{};
        while (::read(check.errors(), unread.data(), unread.size()) > 0) {
        }
        all_ended = check.poll().has_value() && all_ended;
      }
      reports = read_reports(folder);
      const auto answered = [&](const Node& node) {
        return named.contains(node.name) || std::ranges::find(reports, node.name, &NodeReport::node) != reports.end();
      };
      const bool enough = static_cast<int>(nodes_.size() - named.size()) >= wanted_;
      over = over || all_ended || reports.size() == nodes_.size() || (enough && std::ranges::all_of(nodes_, answered));
      if ((signal = taken_signal()) != 0) over = true;
    }
    for (Child& check : checks) {
      check.signal(SIGTERM);
      leaving_.push_back(std::move(check));
    }
    apply_reports(nodes_, reports, begin, unix_seconds());
    for (const NodeReport& report : reports) oom_kills_[report.node] = report.oom_kills;
    return signal;
  }

  static std::vector<NodeReport> read_reports(const std::string& folder) {
    std::vector<NodeReport> reports;
    std::error_code error;
    for (const files::path& path : io::entries_of(folder, error)) {
      if (path.extension() != ".json") continue;
      std::ifstream file(path);
      if (auto report = parse_node_report(std::string(std::istreambuf_iterator<char>(file), {})))
        reports.push_back(std::move(*report));
    }
    return reports;
  }

  std::string life_of(int life) const { return fmt::format("{} {}", id_, life); }

  bool divides(int nodes) const {
    try {
      (void)config::resolve(config_, nodes * all_.ranks_per_node);
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  LaunchCommand command_;
  config::RunConfig config_;
  RestartHistory history_;
  bool exclude_stragglers_;
  Allocation all_;
  int wanted_ = 1;  ///< nodes of a full start
  std::vector<Node> nodes_;
  Words used_;
  std::string id_;
  std::optional<Scratch> scratch_;
  io::Descriptor signals_;
  bool told_ = false;  ///< a signal was forwarded to the ranks
  int told_by_ = 0;
  std::map<std::string, std::int64_t> oom_kills_;
  std::vector<Child> leaving_;                     ///< checks of nodes that did not answer
  std::optional<report::Goodput> goodput_before_;  ///< by earlier jobs
  double start_seconds_ = 0, launched_ = 0, failed_at_ = 0, detected_ = 0;
};

}  // namespace

void add_supervise(CLI::App& app, Action& chosen, const std::vector<std::string>& words) {
  CLI::App* command = add_command(app, "supervise");
  const auto a = std::make_shared<SuperviseArguments>();
  command->add_option("--spares", a->spares, "Nodes of the allocation that wait for another one's failure")
      ->capture_default_str()
      ->check(whole_number(0, 1 << 20));
  command->add_option("--hostfile", a->host_file, "For mpirun: all hosts, one \"NAME slots=RANKS\" a line");
  command
      ->add_option("--restarts-without-progress", a->restarts_without_progress,
                   "End the run after so many restarts in a row without a new step")
      ->capture_default_str()
      ->check(whole_number(1, 1000));
  command->add_flag("--exclude-stragglers", a->exclude_stragglers,
                    "Replace a node whose steps take longer than those of the others by a spare, after the next save");
  command->footer(
      "Trains on the nodes of a Slurm job, or of a host file, except the spares. When ranks hang, are killed or lose "
      "a\n"
      "node, all nodes are checked (trireme doctor --node), and the run restarts from its newest checkpoint on "
      "healthy\n"
      "ones. docs/administrators.md describes the rules. The exit code is that of the last attempt.\n\n"
      "Examples:\n"
      "  trireme supervise --spares 1 -- srun --mpi=pmix trireme train run.toml         in a job of 5 nodes: 4 train\n"
      "  trireme supervise --spares 1 --hostfile hosts -- mpirun --bind-to none trireme train run.toml");
  command->callback([&chosen, a, words] { chosen = [a, words] { return Supervisor(*a, words).run(); }; });
}

}  // namespace trireme::cli
