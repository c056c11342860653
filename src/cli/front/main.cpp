// SPDX-License-Identifier: Apache-2.0
// The program `trireme`: plans and submits without MPI and libtorch, whose loading takes half a second; prints its
// help and rejects a run file with mistakes. For every other command it executes the full program (src/cli/main.cpp,
// libexec/trireme/trireme) in this process. A build for GPUs has two of them: libexec/trireme/cpu/trireme loads no
// CUDA library.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.hpp"
#include "cli/run_command.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/help_text.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/log.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/start/train_arguments.hpp"
#include "cli/this_build.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/exit_report.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/config/load.hpp"
#include "trireme/huggingface/complete_model.hpp"

namespace {

using namespace trireme;
namespace files = std::filesystem;

/// Path of the full program: in a build folder next to this program, else in the installation.
files::path full_program() {
  std::error_code error;
  const files::path here = files::read_symlink("/proc/self/exe", error).parent_path();
  if (error)
    throw EnvironmentError(fmt::format(
        "/proc/self/exe cannot be read: {}; mount /proc (mount -t proc proc /proc), in a container as well: "
        "the program finds its other parts by it",
        error.message()));
  const std::array places{here / "libexec/trireme/trireme", here / TRIREME_FULL_PROGRAM};
  for (const files::path& place : places)
    if (files::exists(place)) return place;
  throw EnvironmentError(fmt::format(
      "{} is missing, which all commands but `plan`, `submit` and `supervise` need: `trireme` was copied without it; "
      "install it with `cmake --install`, or build the target trireme_full",
      places.back().lexically_normal().string()));
}

/// Whether a GPU could be used here: CUDA's libraries find the driver by this name, too.
bool there_is_a_driver() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) ::dlclose(driver);
  return driver != nullptr;
}

/// Whether the command line uses no GPU on any machine: by its command, for help, or by its device. A
/// run file's own device.type is not looked at where thousands of ranks would read it.
bool uses_no_gpu(std::span<const char* const> arguments) {
  if (arguments.size() > 1) {
    const auto* const listed = std::ranges::find(cli::commands, std::string_view(arguments[1]), &cli::Listed::name);
    if (listed != cli::commands.end() && !listed->uses_gpu) return true;
  }
  std::string_view device;  // the last that is set counts
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (word == "--help" || word == "-h") return true;
    const auto takes = [&](std::string_view option, std::string_view setting) {
      if (std::string_view(arguments[i - 1]) == option && word.starts_with(setting)) return true;
      const std::string joined = fmt::format("{}={}", option, setting);
      if (!word.starts_with(joined)) return false;
      word.remove_prefix(option.size() + 1);
      return true;
    };
    if (takes("--set", "device.type=")) device = word.substr(std::string_view("device.type=").size());
    if (takes("--device", "")) device = word;
  }
  return device == "cpu";
}

/// The full program that fits this machine.
files::path program_for_this_machine(bool no_gpu) {
  files::path program = full_program();
  files::path without_cuda = program.parent_path() / "cpu" / program.filename();
  return files::exists(without_cuda) && (no_gpu || !there_is_a_driver()) ? without_cuda : program;
}

/// Libraries of the full program end with misleading messages where the working directory was removed.
void check_working_directory() {
  std::error_code error;
  (void)files::current_path(error);
  if (!error) return;
  cli::defer_to_first_rank(cli::launched(cli::environment), ExitCode::environment);
  throw EnvironmentError(
      fmt::format("the working directory cannot be read ({}): it was removed, or its file system is "
                  "gone. Change to another directory",
                  error.message()));
}

/// Replaces this process: the same arguments, environment and process id. no_gpu: set by the run file.
[[noreturn]] void become_full_program(char** argv, bool no_gpu = false) {
  std::size_t count = 0;
  while (argv[count] != nullptr) ++count;
  check_working_directory();
  const files::path program = program_for_this_machine(no_gpu || uses_no_gpu(std::span(argv, count)));
  // OpenMP reads this when it is loaded. Threads that spin at barriers waste cores which other processes share.
  constexpr std::array<std::string_view, 3> forwards{"evaluate", "generate", "chat"};
  if (count > 1 && std::ranges::find(forwards, argv[1]) != forwards.end())
    (void)::setenv("OMP_WAIT_POLICY", "passive", 0);  // NOLINT(concurrency-mt-unsafe): one thread
  (void)std::fflush(stdout);
  ::execv(program.c_str(), argv);
  throw EnvironmentError(fmt::format("{} could not be started: {}", program.string(), std::strerror(errno)));
}

int plan(int argc, char** argv) {
  CLI::App app{"", "trireme"};
  app.require_subcommand(1);
  cli::Action chosen;
  cli::add_plan(app, chosen, [argv](config::RunConfig config) {
    if (!huggingface::completes(config)) become_full_program(argv);  // the sizes are in a checkpoint, in HDF5
    return huggingface::complete_model(std::move(config));
  });
  return cli::run_command(app, chosen, argc, argv);
}

int submit(int argc, char** argv) {
  CLI::App app{"", "trireme"};
  app.require_subcommand(1);
  cli::Action chosen;
  cli::add_submit(app, chosen);
  return cli::run_command(app, chosen, argc, argv);
}

/// The launcher's command stands behind the first `--`.
int supervise(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  const auto dashes = std::ranges::find(words, std::string_view("--"));
  CLI::App app{"", "trireme"};
  app.require_subcommand(1);
  cli::Action chosen;
  cli::add_supervise(app, chosen, {dashes == words.end() ? dashes : dashes + 1, words.end()});
  return cli::run_command(app, chosen, static_cast<int>(dashes - words.begin()), argv);
}

int help() {
  CLI::App app{"", "trireme"};
  cli::describe_program(app, cli::version_text());
  for (const cli::Listed& command : cli::commands) cli::add_command(app, command.name);
  return cli::print_help(app, CLI::CallForHelp());
}

/// Warns on rank 0 of many ranks a core, before they load the full program. That reports what the run file lacks: Open
/// MPI 4.1's mpirun hangs where a rank ends while it starts others, and srun leaves the others in MPI_Init.
void warn_of_crowded_node(const cli::Launched& by) {
  if (by.rank != 0) return;
  const std::string crowded =
      cli::crowded_node_warning(by.node_ranks, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  if (!crowded.empty()) log::warning(crowded);
}

/// Started without a launcher, rejects a run file with mistakes before MPI and libtorch are loaded. Under a launcher
/// the full program reads the file: once per node, and prints once.
int train(int argc, char** argv) {
  CLI::App app{"", "trireme"};
  cli::TrainArguments arguments;
  app.require_subcommand(1);
  cli::add_train_command(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return cli::print_help(app, asked);
  } catch (const CLI::ParseError&) {
    become_full_program(argv);  // reports the mistake
  }
  bool no_gpu = false;
  const std::optional<cli::Launched> by = cli::launched(cli::environment);
  if (by)
    warn_of_crowded_node(*by);
  else
    no_gpu = config::load_run_file(arguments.run_file.path, arguments.run_file.overrides).device.type ==
             config::DeviceType::cpu;
  become_full_program(argv, no_gpu);
}

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "plan") return plan(argc, argv);
  if (command == "submit") return submit(argc, argv);
  if (command == "supervise") return supervise(argc, argv);
  if (command == "train") return train(argc, argv);
  if (argc == 2 && (command == "--help" || command == "-h")) return help();
  if (command != "--version" || argc > 2) become_full_program(argv);
  fmt::print("{}", cli::version_text());
  cli::flush_standard_output();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  cli::open_standard_streams();
  cli::fail_writes_with_errors();
  try {
    const char* level = std::getenv("TRIREME_LOG");
    cli::install_log({}, level == nullptr ? "" : level);
    return run(argc, argv);
  } catch (...) {
    const ExitReport report = exit_report(std::current_exception());
    fmt::print(stderr, "trireme: error: {}\n", printable_lines(report.text));
    return static_cast<int>(report.code);
  }
}
