// SPDX-License-Identifier: Apache-2.0
//
// The full program: parses the command line and runs the command.
#include <CLI/CLI.hpp>

#include "base/library_settings.hpp"
#include "cli/commands.hpp"
#include "cli/run_command.hpp"
#include "cli/start/end_process.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/launcher.hpp"
#include "cli/start/log.hpp"
#include "cli/start/standard_streams.hpp"
#include "cli/this_build.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/mpi/abort.hpp"

namespace {

using namespace trireme;

int run(int argc, char** argv) {
  CLI::App app{"", "trireme"};
  cli::describe_program(app, cli::version_text());
  cli::Action chosen;
  cli::add_init(app, chosen);
  cli::add_train(app, chosen);
  cli::add_plan(app, chosen, [](config::RunConfig config) { return checkpoint::complete_model(std::move(config)); });
  cli::add_submit(app, chosen);
  cli::add_supervise(app, chosen, {});
  cli::add_tokenize(app, chosen);
  cli::add_data(app, chosen);
  cli::add_generate(app, chosen);
  cli::add_chat(app, chosen);
  cli::add_models(app, chosen);
  cli::add_evaluate(app, chosen);
  cli::add_report(app, chosen);
  cli::add_export_metrics(app, chosen);
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
  set_for_libraries();
  try {
    cli::install_log({}, cli::environment("TRIREME_LOG"));
    return cli::end_process(run(argc, argv));
  } catch (...) {
    mpi::abort_job_for_current_exception();
  }
}
