// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/file_system.hpp"
#include "trireme/checkpoint/library.hpp"
#include "trireme/checkpoint/weights.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/launcher.hpp"
#include "trireme/cli/libraries.hpp"
#include "trireme/cli/log.hpp"
#include "trireme/cli/run_file.hpp"
#include "trireme/cli/standard_streams.hpp"
#include "trireme/cli/with_mpi.hpp"
#include "trireme/comm/broadcast.hpp"
#include "trireme/comm/topology.hpp"
#include "trireme/comm/watchdog.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/tokenizer.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/replay.hpp"
#include "trireme/train/checkpointing.hpp"
#include "trireme/train/choices.hpp"
#include "trireme/train/job.hpp"
#include "trireme/train/output_directory.hpp"
#include "trireme/train/run.hpp"
#include "trireme/train/start_signals.hpp"
#include "trireme/train/stop_signals.hpp"
#include "trireme/train/terminal.hpp"

namespace trireme::cli {
namespace {

/// Token files up to this size are read whole before the start, so that what is wrong in them is said before anything
/// is written; larger ones are checked as they are read.
constexpr std::int64_t read_ahead_bytes = std::int64_t{32} << 20;

void check_tokens(const std::vector<data::Dataset>& datasets) {
  std::vector<std::int32_t> tokens;
  for (const data::Dataset& dataset : datasets)
    for (const data::TokenFile& file : dataset.files()) {
      if (file.tokens() * data::size_of(file.type()) > read_ahead_bytes) continue;
      constexpr std::int64_t at_once = 1 << 16;
      for (std::int64_t first = 0; first < file.tokens(); first += at_once) {
        tokens.resize(static_cast<std::size_t>(std::min(at_once, file.tokens() - first)));
        file.read(first, tokens);
      }
    }
}

void check_data(const config::RunConfig& config) {
  const config::Data& data = config.data;
  if (!data.tokenizer.empty()) (void)data::make_tokenizer(data.tokenizer);  // an export at the end needs it
  check_tokens(data::open_datasets(data.train, data.weighted, data.format, data.seq_len, config.model.vocab_size));
  if (config.train.eval_every > 0)
    check_tokens(data::open_datasets(data.validation, false, data.format, data.seq_len, config.model.vocab_size));
}

/// Batches that are read ahead lie in host memory, whatever computes.
void check_prefetch(const config::RunConfig& config, const config::Resolved& mesh) {
  constexpr double bytes_per_token = 8;  // an input and a target
  const double tokens = static_cast<double>(mesh.accumulation) * static_cast<double>(config.batch.micro) *
                        static_cast<double>(config.data.seq_len);
  const double bytes = static_cast<double>(config.data.prefetch_batches + 1) * tokens * bytes_per_token;
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes > memory)
    throw EnvironmentError(
        fmt::format("data.prefetch_batches = {}: so many batches of {:.4g} tokens take {:.3g} GB of a rank, but this "
                    "node has {:.3g} "
                    "GB of memory. Set fewer, or a smaller batch.",
                    config.data.prefetch_batches, tokens, bytes / 1e9, memory / 1e9));
}

/// Without a GPU the run would train elsewhere than the run file says.
void check_device(const config::Device& device) {
  if (device.type != config::DeviceType::cuda) return;
  const device::GpuProbe found = device::probe_gpus();
  if (found.gpus.empty())
    throw EnvironmentError(
        fmt::format("device.type = \"cuda\", but {}. Start {}, or set device.type = \"cpu\".", found.reason,
                    device::built_for_gpus() ? "it where it may use a GPU" : "a trireme that was built for GPUs"));
}

/// What the file system of the checkpoints wants to be told before the first save.
void hint_at_striping(const config::RunConfig& config, const model::Model& model, const config::Resolved& mesh) {
  if (!train::saves_checkpoints(config)) return;
  constexpr std::int64_t parameter_and_moments = 3 * 4;  // bytes
  const std::string hint =
      checkpoint::striping_hint(checkpoint::file_system_of(config.checkpoint.directory), config.checkpoint.directory,
                                (std::int64_t{mesh.replicate} * mesh.shard + config.checkpoint.ranks_per_file - 1) /
                                    config.checkpoint.ranks_per_file * mesh.tensor,
                                Bytes{parameter_and_moments * model.elements()});
  if (!hint.empty()) log::info(hint);
}

/// Whether the run writes or reads a checkpoint: what it needs is looked for before it begins.
bool needs_hdf5(const config::RunConfig& config) {
  const config::Checkpoint& options = config.checkpoint;
  const std::string& from = config.model.from;
  if (train::saves_checkpoints(config) || (!from.empty() && checkpoint::is_checkpoint(from))) return true;
  return options.resume == "auto" ? !checkpoint::list_checkpoints(options.directory).empty() : options.resume != "none";
}

/// Everything in the run file that can be wrong, looked at by one rank, so that a mistake is said once. Returns the
/// effective run file.
std::string preflight(config::RunConfig config, int ranks) {
  check_device(config.device);
  const config::Resolved mesh = config::resolve(config, ranks);
  const config::RunConfig complete = train::complete_model(config);
  const model::Model model = model::build(complete.model, planner::tensor_part(complete, mesh, 0));
  if (const std::optional<config::Sync> saved = train::saved_policy(complete, mesh)) {
    config.sync = *saved;
    log::info(fmt::format("sync.policy = auto: {}, as this run began", config::to_text(saved->policy)));
  } else {
    const bool gpu = complete.device.type == config::DeviceType::automatic && !device::probe_gpus().gpus.empty();
    const planner::Choice choice = planner::choose_sync(planner::computing_on(complete, gpu), model, mesh);
    config.sync = choice.sync;
    if (!choice.reason.empty()) log::info(choice.reason);
  }
  train::check_weights(complete, model);
  check_prefetch(complete, config::resolve(complete, ranks));
  check_data(complete);
  if (needs_hdf5(complete)) checkpoint::check_hdf5();
  train::check_output_directory(complete);
  hint_at_striping(complete, model, mesh);
  return config::print_run_file(config);
}

constexpr const char* examples =
    "Examples:\n"
    "  mpirun -n 4 --bind-to none trireme train inputs/quickstart.toml\n"
    "  srun trireme train run.toml --set train.steps=1000 --set run.output=runs/second\n"
    "  trireme train run.toml                    one rank\n"
    "  trireme plan run.toml --ranks 64          what it would hold and move, without running it\n\n"
    "It leaves behind, in run.output: run.toml (the effective run file), metrics.jsonl (a line a step), tensorboard/\n"
    "(the same as curves, with metrics.tensorboard), export/ (weights for trireme generate and Hugging Face, with\n"
    "run.export). TRIREME_LOG=debug says more.\n";

/// Refuses ranks that MPI does not join. They fail alike, so the first speaks; the others give it time.
void refuse_lone_ranks(const comm::Communicator& world) {
  const std::optional<Launched> by = launched(environment);
  if (by && by->ranks != world.size()) leave_the_word_to_the_first(by);
  check_launcher(by, world.size(), mpi_library());
}

/// comm.timeout_seconds as far as it is known before the run file is read: what the command line says, or the default.
double seconds_to_start(const RunFileArguments& arguments) {
  constexpr std::string_view key = "comm.timeout_seconds=";
  double seconds = config::Comm{}.timeout_seconds;
  for (const std::string& set : arguments.overrides)
    if (set.starts_with(key))
      if (const double said = std::atof(set.c_str() + key.size()); said > 0) seconds = said;
  return seconds;
}

int train(const comm::Communicator& world, const RunFileArguments& arguments,
          std::optional<train::StartSignals>& start_signals) {
  const bool progress_line = world.rank() == 0 && train::rewrites_lines(train::surroundings());
  install_log({.rank = world.rank(),
               .host = comm::hostname(),
               .clears_line = progress_line && train::errors_show_on_a_terminal()},
              environment("TRIREME_LOG"));
  log::debug("MPI is up");
  refuse_lone_ranks(world);
  fault::set_rank(world.rank());
  if (world.rank() == 0 && fault::armed()) {
    log::warning("TRIREME_FAULT is set: this run will break on purpose");
    (void)fault::point("train.begin");  // says what is wrong in it, once
  }
  // A rank that is stuck before the run begins, in a file system or in a library, ends the job as one that stops later.
  std::optional<comm::Watchdog> start;
  start.emplace(comm::Deadline{.timeout_seconds = seconds_to_start(arguments)}, nullptr, "agreeing on the run file");
  const config::RunConfig told = one_run_file(world, arguments);
  const std::string text = comm::broadcast_text(world, world.rank() == 0 ? preflight(told, world.size()) : "");
  const config::RunConfig config = config::parse_run_file(text, arguments.path);
  log::debug("the run file, the weights and the data are right");
  start.emplace(comm::Deadline{.timeout_seconds = config.comm.timeout_seconds}, nullptr, "starting the libraries");
  const Libraries libraries(world, config.device.threads);
  log::debug("the libraries are up");
  start.reset();
  start_signals.reset();
  return static_cast<int>(train::run_training(config, world, arguments.path));
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  const auto arguments = std::make_shared<RunFileArguments>();
  CLI::App* command = app.add_subcommand("train", "Train what a run file describes: under mpirun or srun, or alone.");
  command->add_option("RUN.toml", arguments->path, "The run file")->required();
  command
      ->add_option("--set", arguments->overrides, "override a key of the run file: section.key=value; may be repeated")
      ->allow_extra_args(false);
  command->footer([] { return examples + ("\nThe run file's keys:\n" + config::explain_options()); });
  command->callback([&chosen, arguments] {
    chosen = [arguments] {
      outlive_readers();
      refuse_ranks_that_nobody_introduced();
      train::hold_stop_signals();
      std::optional<train::StartSignals> start_signals(std::in_place);
      return with_mpi([&](const comm::Communicator& world) { return train(world, *arguments, start_signals); });
    };
  });
}

}  // namespace trireme::cli
