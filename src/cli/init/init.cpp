// SPDX-License-Identifier: Apache-2.0
//
// trireme init: writes a commented run file.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>

#include "cli/commands.hpp"
#include "cli/init/first_run_file.hpp"
#include "cli/init/from_lingua.hpp"
#include "cli/init/from_torchtitan.hpp"
#include "cli/init/gpu_machines.hpp"
#include "cli/init/named_models.hpp"
#include "cli/init/source_fields.hpp"
#include "cli/init/token_checks.hpp"
#include "cli/plan_time.hpp"
#include "cli/start/front_page.hpp"
#include "cli/start/numbers.hpp"
#include "cli/submit_script.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/tokenize.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/huggingface/hub.hpp"
#include "trireme/model/model.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/tokenizer.hpp"

namespace trireme::cli {
namespace {

namespace files = std::filesystem;
constexpr std::int64_t first_seq_len = 4096;
constexpr std::int64_t most_config_bytes = 16 << 20;

struct InitArguments {
  std::string from;
  std::string torchtitan, lingua;  ///< configuration files of these trainers
  std::vector<std::string> data;
  std::string tokenizer;
  std::string machine;
  std::string output = "run.toml";
  int ranks = 0;
  std::int64_t seq_len = 0;
};

bool there(const files::path& path) {
  std::error_code ignored;
  return files::exists(path, ignored);
}

std::string names_of_models() {
  std::vector<std::string> names;
  for (const NamedModel& model : named_models()) names.emplace_back(model.name);
  return join(names, ", ");
}

/// A run without a tokenizer cannot generate text, nor can its exports.
void warn_without_tokenizer(const InitArguments& arguments, const config::RunConfig& config) {
  if (!config.data.tokenizer.empty() || !arguments.tokenizer.empty()) return;
  log::warning(fmt::format(
      "--from {}: there is no tokenizer with the model, so the run file and exports have none; give the one that made "
      "the data with --tokenizer hf:PATH, spm:PATH or bytes",
      arguments.from));
}

/// [model] of the run file, its sizes, and the longest sequence that --seq-len may leave out.
void choose_model(const InitArguments& arguments, FirstRun& run, std::string& about) {
  config::RunConfig& config = run.config;
  const auto names = named_models();
  const auto named = std::ranges::find(names, arguments.from, &NamedModel::name);
  const bool is_file = files::path(arguments.from).extension() == ".json" && there(arguments.from);
  std::int64_t longest = first_seq_len;
  if (named != names.end()) {
    config.model = run.sizes = named->model;
    longest = named->seq_len;
    about = fmt::format("{}, from scratch", named->about);
  } else if (is_file ||
             (huggingface::is_huggingface(arguments.from) && !there(arguments.from + "/model.safetensors") &&
              !there(arguments.from + "/model.safetensors.index.json") && !checkpoint::is_checkpoint(arguments.from))) {
    const std::string path = is_file ? arguments.from : arguments.from + "/config.json";
    const huggingface::HfConfig read = huggingface::parse_hf_config(io::read_text(path, most_config_bytes), path);
    config.model = run.sizes = read.model;
    if (read.max_position_embeddings > 0) longest = std::min(longest, read.max_position_embeddings);
    const files::path folder = files::path(path).parent_path();
    config.data.tokenizer = tokenizer::spec_in_directory(folder.empty() ? "." : folder.string());
    about = fmt::format("The model of {}, from scratch", path);
    warn_without_tokenizer(arguments, config);
  } else if (there(arguments.from)) {
    const checkpoint::Weights weights = checkpoint::Weights::open(arguments.from);
    weights.warn_of_unread_keys();
    run.sizes = weights.model();
    config.model.from = arguments.from;
    const std::int64_t positions = weights.generation().max_position_embeddings;
    if (positions > 0) longest = std::min(longest, positions);
    config.data.tokenizer = checkpoint::is_checkpoint(arguments.from) ? weights.generation().tokenizer
                                                                      : tokenizer::spec_in_directory(arguments.from);
    about = fmt::format("Continues from the weights of {}", arguments.from);
    warn_without_tokenizer(arguments, config);
  } else {
    throw ConfigError(
        fmt::format("--from {}: no such file or folder, and no name; give a config.json, a Hugging Face directory, a "
                    "checkpoint, or one of {}{}",
                    arguments.from, names_of_models(), huggingface::hub_download(arguments.from)));
  }
  config.data.seq_len = arguments.seq_len > 0 ? arguments.seq_len : longest;
}

/// Chooses [data] of the run file; counts its samples.
void choose_data(const InitArguments& arguments, FirstRun& run, Reasons& reasons) {
  config::Data& data = run.config.data;
  if (arguments.tokenizer.empty() && !data.tokenizer.empty())
    reasons["data.tokenizer"] = "the model's: the token files are made with it; stored in exports";
  if (!arguments.tokenizer.empty()) data.tokenizer = arguments.tokenizer;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!data.tokenizer.empty()) {
    tokenizer = tokenizer::make_tokenizer(data.tokenizer);
    const std::int64_t ids = tokenizer->vocab_size();
    if (run.config.model.from.empty() && !arguments.tokenizer.empty()) {
      run.config.model.vocab_size = run.sizes.vocab_size = ids;
      reasons["model.vocab_size"] = "the tokenizer's";
    } else if (ids > run.sizes.vocab_size) {
      throw ConfigError(fmt::format("tokenizer {} has {} ids, but {} has a vocabulary of {}; give another --tokenizer",
                                    data.tokenizer, ids, arguments.from, run.sizes.vocab_size));
    }
  }
  if (run.sizes.vocab_size == 0)
    throw ConfigError(
        fmt::format("--from {} has no vocabulary of its own: give the tokenizer that made the data, such "
                    "as --tokenizer bytes",
                    arguments.from));
  for (const std::string& path : arguments.data) {
    data.train.push_back({.path = path});
    const std::string validation = data::validation_path(path);
    if (there(validation)) data.validation.push_back({.path = validation});
  }
  const auto samples_of = [&](const std::vector<config::TokenSource>& sources) {
    refuse_two_byte_tokens(sources, data.format, run.sizes.vocab_size);
    std::int64_t samples = 0;
    for (const data::Dataset& dataset :
         data::open_datasets(sources, false, data.format, data.seq_len, run.sizes.vocab_size)) {
      samples += dataset.samples();
      check_ids(dataset, tokenizer.get(), data.tokenizer, run.sizes.vocab_size);  // an error here, not after a queue
    }
    return samples;
  };
  run.samples = samples_of(data.train);
  if (!data.validation.empty()) run.validation = samples_of(data.validation);
  reasons["data.train"] = fmt::format("{} sequences", run.samples);
  if (run.validation > 0) reasons["data.validation"] = fmt::format("{} sequences", run.validation);
  reasons["data.seq_len"] = "tokens of a sequence";
}

/// Selects the machine of the ranks: --machine, else this machine's GPUs, else its cores.
void choose_machine(const InitArguments& arguments, FirstRun& run, Reasons& reasons) {
  const device::GpuProbe found = device::probe_gpus();
  const bool asked = !arguments.machine.empty();
  const auto found_here = [&] {
    return found.gpus.empty() ? "local" : shipped_machine_of(found.gpus.front().name, found.gpus.front().memory);
  };
  run.machine = load_machine_here(asked ? arguments.machine : found_here());
  const bool cpu = run.machine.gpus.empty();
  if (cpu && !asked) {
    run.machine.node_memory = {static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE)};
    run.machine.memory = {run.machine.node_memory.value / run.ranks};
    run.machine.gpus_per_node = std::max<double>(run.machine.gpus_per_node, run.ranks);  // all on this machine
  }
  run.config.device.type = cpu ? config::DeviceType::cpu : config::DeviceType::cuda;
  reasons["device.type"] = cpu ? "auto takes a GPU where every rank has one" : "refused where a rank has no GPU";
  run.config.precision.compute = cpu ? DType::fp32 : DType::bf16;
  reasons["precision.compute"] =
      cpu ? "bf16 is faster on CPUs with bf16 instructions" : "masters, moments and reductions stay fp32";
}

/// Reads the configuration of --from-torchtitan or --from-lingua.
TranslatedRun translated(const InitArguments& arguments) {
  if (!arguments.lingua.empty())
    return translate_lingua(read_source(arguments.lingua), arguments.lingua, arguments.ranks, arguments.from.empty());
  const std::string& path = arguments.torchtitan;
  const std::size_t colon = path.find(':');
  if (!there(path) && colon != std::string::npos)
    throw ConfigError(fmt::format(
        "--from-torchtitan {}: configurations in Python are read from a dump; write it where torchtitan is installed:\n"
        "  python -c \"import json; from torchtitan.config import ConfigManager; print(json.dumps(ConfigManager()"
        ".parse_args(['--module', '{}', '--config', '{}']).to_dict(), default=repr))\" > job.json\n"
        "and give job.json, or the file that a job wrote with --debug.save_config_file",
        path, path.substr(0, colon), path.substr(colon + 1)));
  return translate_torchtitan(read_source(path), path, arguments.ranks, arguments.from.empty());
}

std::string list_of(const std::string& heading, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return lines.empty() ? "" : "\n\n" + heading + text;
}

/// The tokenizer of the folder that the configuration names, where it is here.
void take_assets(const InitArguments& arguments, const TranslatedRun& source, FirstRun& run, Reasons& reasons,
                 std::vector<std::string>& without) {
  if (source.assets.empty() || !arguments.tokenizer.empty() || !run.config.data.tokenizer.empty()) return;
  std::error_code ignored;
  if (files::is_directory(source.assets, ignored))
    run.config.data.tokenizer = tokenizer::spec_in_directory(source.assets);
  if (run.config.data.tokenizer.empty())
    without.push_back(fmt::format("hf_assets_path = {}: no tokenizer there; give it with --tokenizer", source.assets));
  else
    reasons["data.tokenizer"] = "hf_assets_path";
}

/// A run file from another trainer's configuration, whose settings are taken as they are.
int init_from_other(const InitArguments& arguments) {
  const bool titan = arguments.lingua.empty();
  const std::string trainer = titan ? "TorchTitan" : "Lingua", file = titan ? arguments.torchtitan : arguments.lingua;
  TranslatedRun source = translated(arguments);
  FirstRun run{.config = source.config, .sizes = source.config.model, .ranks = arguments.ranks, .machine = {}};
  Reasons& reasons = source.reasons;
  std::vector<std::string>& without = source.without_counterpart;
  const std::string name = files::path(arguments.output).stem().string();
  run.config.run.name = name;
  if (run.config.run.output.empty()) run.config.run.output = "runs/" + name;
  reasons.try_emplace("run.output", "checkpoints, metrics.jsonl, export");
  std::string about;
  const std::int64_t seq_len = run.config.data.seq_len;
  InitArguments model = arguments;
  if (model.from.empty()) model.from = run.config.model.from;  // weights have the sizes
  if (!model.from.empty()) {
    run.config.model = {};
    choose_model(model, run, about);
  }
  run.config.data.seq_len = arguments.seq_len > 0 ? arguments.seq_len : seq_len;
  take_assets(arguments, source, run, reasons, without);
  const std::string of_length = arguments.seq_len > 0 ? "--seq-len" : reasons["data.seq_len"];
  if (run.sizes.vocab_size == 0 && model.tokenizer.empty()) model.tokenizer = run.config.data.tokenizer;
  if (run.sizes.vocab_size == 0 && model.tokenizer.empty())
    throw ConfigError(
        fmt::format("{} has no vocabulary: give the tokenizer that made the data with --tokenizer", file));
  const std::string of_tokenizer = reasons["data.tokenizer"];
  choose_data(model, run, reasons);
  if (!of_tokenizer.empty()) reasons["data.tokenizer"] = of_tokenizer;
  reasons["data.seq_len"] = of_length;
  if (source.validates && run.config.data.validation.empty()) {
    run.config.train.eval_every = run.config.train.eval_steps = 0;
    without.emplace_back(
        "validation.enable = true: there is no FILE-validation next to --data; make it with trireme "
        "tokenize --validation, set data.validation and train.eval_every");
  }
  const config::Precision precision = run.config.precision;
  const std::string of_precision = reasons["precision.compute"];
  choose_machine(arguments, run, reasons);
  run.config.precision = precision;
  reasons["precision.compute"] = of_precision;
  const std::string commands = fmt::format("  trireme plan {} --ranks {}\n  {}\n  {}", arguments.output, run.ranks,
                                           start_command(arguments.output, run.ranks, run.machine, 3),
                                           start_command(arguments.output, run.ranks, run.machine));
  const std::string lists = list_of(fmt::format("Differences from {}:", trainer), source.differences) +
                            list_of("Fields without a counterpart:", without);
  const std::string text = first_run_text(
      run.config, reasons,
      fmt::format("Translated from {}'s {} by `trireme init`; each key has its source field as a comment.\n"
                  "Keys that are left out have their defaults (docs/run-file.md); docs/from-pytorch.md has the table."
                  "{}\n\n{}",
                  trainer, file, lists, commands));
  (void)config::resolve(config::parse_run_file(text, arguments.output), run.ranks);
  io::replace_text(arguments.output, text);
  fmt::print("{}: translated from {}.{}\n\nNext:\n{}\n", arguments.output, file, lists, commands);
  return 0;
}

int init(const InitArguments& arguments) {
  if (there(arguments.output))
    throw ConfigError(
        fmt::format("{} exists and is left as it is; remove it, or write another one with -o", arguments.output));
  if (!arguments.torchtitan.empty() || !arguments.lingua.empty()) return init_from_other(arguments);
  if (arguments.from.empty())
    throw ConfigError("--from is required, or --from-torchtitan or --from-lingua. See `trireme init --help`.");
  FirstRun run{.config = {}, .sizes = {}, .ranks = arguments.ranks, .machine = {}};
  Reasons reasons;
  const std::string name = files::path(arguments.output).stem().string();
  run.config.run.name = name;
  run.config.run.output = "runs/" + name;
  reasons["run.output"] = "checkpoints, metrics.jsonl, report.html, export";
  reasons["run.name"] = "shown in logs";
  std::string about;
  choose_model(arguments, run, about);
  choose_data(arguments, run, reasons);
  choose_machine(arguments, run, reasons);
  choose_training(run, reasons);
  const planner::Found best = choose_settings(run, reasons);
  const bool guess = run.machine.gpus.empty() && run.machine.grade != planner::Grade::measured;
  const std::string predicted = fmt::format(
      "{} parameters on {} rank{}; the planner predicts {} a rank, {} of host memory a node and {} tokens/s on {}{}{}",
      to_short_text(static_cast<double>(model::build(run.sizes).elements())), run.ranks, run.ranks == 1 ? "" : "s",
      to_text(best.prediction.memory.total()), to_text(best.host.bytes),
      to_short_text(best.prediction.tokens_per_second()), run.machine.name,
      run.machine.cores > 0 && run.machine.cores < run.ranks
          ? fmt::format(", whose {:.0f} core{} they share", run.machine.cores, run.machine.cores == 1 ? "" : "s")
          : "",
      guess ? " (a guess until `trireme doctor --measure`)" : "");
  const std::string commands = fmt::format("  trireme plan {} --ranks {}\n  {}\n  {}", arguments.output, run.ranks,
                                           start_command(arguments.output, run.ranks, run.machine, 3),
                                           start_command(arguments.output, run.ranks, run.machine));
  const std::string text = first_run_text(
      run.config, reasons,
      fmt::format(
          "{}.\n{}.\nMade by `trireme init`; keys that are left out have their defaults (docs/run-file.md).\n\n{}",
          about, predicted, commands));
  (void)config::resolve(config::parse_run_file(text, arguments.output), run.ranks);
  io::replace_text(arguments.output, text);
  fmt::print("{}: {}. Next:\n{}\n", arguments.output, predicted, commands);
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Action& chosen) {
  const auto a = std::make_shared<InitArguments>();
  CLI::App* command = add_command(app, "init");
  command->add_option(
      "--from", a->from,
      "The model: a config.json (from scratch), a Hugging Face directory or a checkpoint (its weights), "
      "or a name: " +
          names_of_models());
  command->add_option("--from-torchtitan", a->torchtitan,
                      "Translate a job configuration of TorchTitan: TOML, or the JSON that debug.save_config_file "
                      "writes; --from replaces its model");
  command
      ->add_option("--from-lingua", a->lingua,
                   "Translate a configuration of Meta Lingua: YAML by indentation, or JSON; --from replaces its model")
      ->excludes("--from-torchtitan");
  command
      ->add_option("--data", a->data,
                   "Token files of `trireme tokenize`; FILE-validation in the same folder is used, too")
      ->required();
  command->add_option("--ranks", a->ranks, "Ranks of the job")
      ->required()
      ->check(whole_number(1, std::numeric_limits<int>::max()));
  command->add_option("--tokenizer", a->tokenizer,
                      "What made the data: bytes, spm:PATH or hf:PATH; sets the vocabulary of a model from scratch");
  command->add_option("--machine", a->machine,
                      "Where it will run: a machine file or a shipped name (`trireme plan --help`); default: the "
                      "shipped one of this machine's GPUs, else this machine's cores");
  command
      ->add_option("--seq-len", a->seq_len,
                   "Tokens of a sequence; default: the model's, at most 4096; of a name its own")
      ->check(whole_number(1, 1 << 24));
  command->add_option("-o,--output", a->output, "The run file; never written over")->capture_default_str();
  command->footer(
      "Chooses mesh, microbatch, sync policy and memory settings with the planner, and batch, learning rate and steps "
      "by the sizes of model and data. Each key has its reason in a comment. Try the file with `train --try 3`.\n\n"
      "Examples:\n"
      "  trireme init --from tiny --tokenizer bytes --data data/book.bin --ranks 2 -o first.toml\n"
      "  trireme init --from runs/quickstart/export --data data/book.bin --ranks 2 -o continued.toml\n\n"
      "With --from-torchtitan or --from-lingua mesh, batch, precision, optimizer, learning rate, validation and "
      "checkpoints are those "
      "of "
      "the file; its fields without a counterpart are listed (docs/from-pytorch.md).");
  command->callback([&chosen, a] { chosen = [a] { return init(*a); }; });
}

}  // namespace trireme::cli
