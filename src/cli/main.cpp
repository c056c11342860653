// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>

#include "cli/commands.hpp"
#include "cli/run_command.hpp"
#include "cli/start/end_process.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/library_settings.hpp"
#include "cli/start/log.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/this_build.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/mpi/abort.hpp"

namespace {

using namespace trireme;

constexpr const char* about =
    "Trireme trains Llama-class language models on HPC clusters. Every training step is a schedule that can be "
    "printed, "
    "planned and verified.";
constexpr const char* first_steps =
    "From text to a model:\n"
    "  trireme doctor                                                          check this machine\n"
    "  trireme tokenize --tokenizer bytes -o runs/data/quickstart.bin book.txt\n"
    "  trireme plan inputs/quickstart.toml --ranks 4                           memory and traffic of one rank\n"
    "  mpirun -n 4 --bind-to none trireme train inputs/quickstart.toml\n"
    "  trireme generate runs/quickstart/export --prompt \"In the beginning\"\n\n"
    "`trireme COMMAND --help` describes a command; `trireme train --help` lists every key of the run file.\n\n";
constexpr const char* exit_codes =
    "Exit codes: 0 done, 1 a bug in Trireme, 2 usage or run file, 3 token files, 4 checkpoints and weights,\n"
    "5 environment (MPI, libraries, memory), 6 numerics, 7 a hang, 8 failed writes, 75 saved on a signal (requeue),\n"
    "128+n signals.";

int run(int argc, char** argv) {
  CLI::App app{about, "trireme"};
  app.require_subcommand(1);
  app.footer(std::string(first_steps) + exit_codes);
  app.set_version_flag("--version", cli::version_text());
  cli::Action chosen;
  cli::add_init(app, chosen);
  cli::add_train(app, chosen);
  cli::add_plan(app, chosen, [](config::RunConfig config) { return checkpoint::complete_model(std::move(config)); });
  cli::add_tokenize(app, chosen);
  cli::add_generate(app, chosen);
  cli::add_models(app, chosen);
  cli::add_evaluate(app, chosen);
  cli::add_report(app, chosen);
  cli::add_doctor(app, chosen);
  cli::add_checkpoints(app, chosen);
  cli::add_pages(app, chosen);
  return cli::run_command(app, chosen, argc, argv, [] {
    if (cli::one_command_line(cli::environment))
      cli::defer_to_first_rank(cli::launched(cli::environment), ExitCode::usage);
  });
}

}  // namespace

int main(int argc, char** argv) {
  cli::open_standard_streams();
  cli::fail_writes_with_errors();
  cli::set_for_libraries();
  try {
    cli::install_log({}, cli::environment("TRIREME_LOG"));
    return cli::end_process(run(argc, argv));
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}
