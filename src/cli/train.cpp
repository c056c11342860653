// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/run.hpp"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/file.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/libraries.hpp"
#include "trireme/comm/broadcast.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/config/load.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/train/job.hpp"

namespace trireme::cli {
namespace {

struct Arguments {
  std::string run_file;
  std::vector<std::string> overrides;
};

/// Everything in the run file that can be wrong, looked at by one rank, so that a mistake is said once. Returns the effective run file.
std::string preflight(const Arguments& arguments, int ranks) {
  const config::RunConfig config = config::load_run_file(arguments.run_file, arguments.overrides);
  (void)config::resolve(config, ranks);
  const config::RunConfig complete = train::complete_model(config);
  const model::Model model = model::build(complete.model);
  if (!complete.model.from.empty()) (void)train::first_parameters(complete, model);
  const config::Data& data = complete.data;
  (void)data::open_datasets(data.train, data.weighted, data.format, data.seq_len, complete.model.vocab_size);
  if (complete.train.eval_every > 0)
    (void)data::open_datasets(data.validation, false, data.format, data.seq_len, complete.model.vocab_size);
  return config::print_run_file(config);
}

int train(const Arguments& arguments) {
  const comm::Session session(nullptr, nullptr);
  const comm::Communicator& world = session.world();
  if (world.rank() == 0 && fault::armed()) log::warning("TRIREME_FAULT is set: this run will break on purpose");
  const std::string text = comm::broadcast_text(world, world.rank() == 0 ? preflight(arguments, world.size()) : "");
  const config::RunConfig config = config::parse_run_file(text, arguments.run_file);
  const Libraries libraries(world, config.device.threads);
  train::run_training(config, world);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train what a run file describes: under mpirun or srun, or alone.");
  command->add_option("RUN.toml", arguments->run_file, "The run file")->required();
  command->add_option("--set", arguments->overrides, "section.key=value instead of what the run file says; may be given often");
  command->footer([] { return "The run file's keys:\n" + config::explain_options(); });
  command->callback([&chosen, arguments] { chosen = [arguments] { return train(*arguments); }; });
}

}  // namespace trireme::cli
