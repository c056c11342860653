// SPDX-License-Identifier: Apache-2.0
#include "train/preflight.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/choices.hpp"
#include "train/save/checkpoint_files.hpp"
#include "train/setup/host_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file_system.hpp"
#include "trireme/base/log.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/hdf5_version.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/checkpoint/save/staging.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/text_source.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/data/document_checks.hpp"
#include "trireme/data/tokenizer_check.hpp"
#include "trireme/device/gpus.hpp"
#include "trireme/optimizer/plan.hpp"
#include "trireme/planner/choose.hpp"
#include "trireme/planner/pipeline.hpp"
#include "trireme/planner/time/predict.hpp"
#include "trireme/supervise/start_signals.hpp"
#include "trireme/tokenizer/identity.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/save/output_directory.hpp"
#include "trireme/train/setup/tuned_settings.hpp"

namespace trireme::train {
namespace {

/// Token files up to this size are read whole before the start, so that mistakes in them are reported before anything
/// is written; larger ones are checked as they are read.
constexpr std::int64_t read_ahead_bytes = std::int64_t{32} << 20;

/// known: the ids of data.tokenizer.
void check_tokens(const std::vector<data::Dataset>& datasets, const std::string& tokenizer, std::int64_t known) {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> mask;
  for (const data::Dataset& dataset : datasets)
    for (const data::TokenFile& file : dataset.files()) {
      if (file.tokens() * data::size_of(file.type()) > read_ahead_bytes) continue;
      constexpr std::int64_t at_once = 1 << 16;
      for (std::int64_t first = 0; first < file.tokens(); first += at_once) {
        tokens.resize(static_cast<std::size_t>(std::min(at_once, file.tokens() - first)));
        file.read(first, tokens);
        if (const std::int32_t most = *std::ranges::max_element(tokens); most >= known)
          throw DataError(fmt::format(
              "data.tokenizer = {} has {} ids, but token file {} holds token {}: another tokenizer made it; set "
              "data.tokenizer to that one, which the run's export is to take along",
              tokenizer, known, file.path(), most));
        if (!file.masked()) continue;
        mask.resize(tokens.size());
        file.read_mask(first, mask);
      }
    }
}

/// The tokenizer that model.from holds or names; "" if it has none, or none that can be read here.
std::string tokenizer_of_model(const std::string& from) {
  if (from.empty()) return "";
  const std::string spec = checkpoint::Weights::open(from).generation().tokenizer;
  try {
    if (!spec.empty()) (void)tokenizer::make_tokenizer(spec);
    return spec;
  } catch (const DataError& error) {
    log::warning(fmt::format("the tokenizer of {} cannot be read, so that data.train is not compared with it: {}", from,
                             error.what()));
    return "";
  }
}

/// Warns if data.tokenizer produces other ids than that of the initial model.
void compare_with_model(const config::RunConfig& config, const tokenizer::Tokenizer& tokenizer) {
  const std::string known = tokenizer_of_model(config.model.from);
  if (known.empty() || known == config.data.tokenizer) return;
  const std::string differs =
      tokenizer::difference(known, *tokenizer::make_tokenizer(known), config.data.tokenizer, tokenizer);
  if (!differs.empty())
    log::warning(fmt::format("data.tokenizer = {} {}, but {} was trained with {}: its embeddings are of other tokens",
                             config.data.tokenizer, differs, config.model.from, known));
}

/// The default of data.document_end where masks need it.
void take_document_end(config::Data& data) {
  if (!data.document_mask || data.document_end || data.tokenizer.empty()) return;
  data.document_end = tokenizer::make_tokenizer(data.tokenizer)->document_end();
}

/// Batches that are read ahead are in host memory, for any compute device.
void check_prefetch(const config::RunConfig& config, const config::Resolved& mesh) {
  const double bytes_per_token = config.data.document_mask ? 12 : 8;  // input, target, begin of the document
  const double tokens = static_cast<double>(mesh.accumulation) * static_cast<double>(config.batch.micro) *
                        static_cast<double>(config.data.seq_len);
  const double bytes = static_cast<double>(config.data.prefetch_batches + 1) * tokens * bytes_per_token;
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes > memory)
    throw EnvironmentError(
        fmt::format("data.prefetch_batches = {}: so many batches of {:.4g} tokens take {:.3g} GB of a rank, but this "
                    "node has {:.3g} GB of memory. Set fewer, or a smaller batch.",
                    config.data.prefetch_batches, tokens, bytes / 1e9, memory / 1e9));
}

/// Without a GPU the run would train on another device than that of the run file.
void check_device(const config::Device& device) {
  if (device.type != config::DeviceType::cuda) return;
  const device::GpuProbe found = device::probe_gpus();
  if (found.gpus.empty())
    throw EnvironmentError(
        fmt::format("device.type = \"cuda\", but {}. Start {}, or set device.type = \"cpu\".", found.reason,
                    device::built_for_gpus() ? "it where it may use a GPU" : "a trireme that was built for GPUs"));
}

void check_optimizer(const config::RunConfig& config, bool gpu) {
  if (gpu && config.optimizer.name == config::OptimizerName::muon)
    throw ConfigError(
        "optimizer.name: \"muon\" is not available on GPUs yet, and this run has a GPU per rank; set optimizer.name = "
        "\"adamw\", or device.type = \"cpu\"");
}

/// Advice on the file system of the checkpoints before the first save.
void hint_at_files(const config::RunConfig& config, const model::Model& model, const config::Resolved& mesh,
                   int node_ranks) {
  if (!saves_checkpoints(config)) return;
  const std::string hint =
      io::striping_hint(io::file_system_of(config.checkpoint.directory), config.checkpoint.directory,
                        checkpoint::files_of(mesh.of_storage(), config.checkpoint.ranks_per_file),
                        optimizer::OptimizerPlan(config).saved_bytes(model));
  if (!hint.empty()) log::info(hint);
  const std::string files = ranks_per_file_hint(mesh.of_storage(), config.checkpoint.ranks_per_file, node_ranks);
  if (!files.empty()) log::info(files);
}

/// A run that is shorter than warm-up and decay is taken for the first steps of a longer one.
void hint_at_schedule(const config::RunConfig& config) {
  const config::Lr& lr = config.lr;
  const std::int64_t end = lr.end_step.value_or(config.train.steps);
  if (lr.schedule != config::LrSchedule::wsd || lr.warmup_steps + lr.wsd_decay_steps <= end) return;
  log::warning(
      fmt::format("lr.schedule = \"wsd\": the learning rate never decays, since lr.warmup_steps {} + "
                  "lr.wsd_decay_steps {} go beyond the last step, {}; set fewer, or more train.steps",
                  lr.warmup_steps, lr.wsd_decay_steps, end));
}

/// Whether the run writes or reads a checkpoint: HDF5 is checked before it begins.
bool needs_hdf5(const config::RunConfig& config) {
  const config::Checkpoint& options = config.checkpoint;
  const std::string& from = config.model.from;
  if (saves_checkpoints(config) || (!from.empty() && checkpoint::is_checkpoint(from))) return true;
  return options.resume == "auto" ? !checkpoint::list_checkpoints(options.directory).empty() : options.resume != "none";
}

/// Mesh and model for which sync.policy = auto is chosen.
planner::Machine machine_of_rank(bool gpu) {
  if (!gpu) return planner::machine_of("", Bytes{});
  const device::GpuProbe found = device::probe_gpus();
  return planner::machine_of(found.gpus.front().name, found.gpus.front().memory);
}

/// RoPE whose frequencies depend on the length of a sequence would differ between short rows and whole
/// microbatches (Job::row_loss).
void check_choices(const config::RunConfig& config) {
  const config::Mesh& mesh = config.mesh;
  const bool whole = mesh.tensor > 1 || mesh.context > 1 || mesh.pipeline > 1 || mesh.expert > 1;
  if (config.data.choices.empty() || !whole || !config.model.rope_scaling) return;
  const config::RopeType type = config.model.rope_scaling->type;
  if (type != config::RopeType::dynamic && type != config::RopeType::longrope) return;
  throw ConfigError(fmt::format(
      "data.choices: RoPE of type {} depends on the length of a sequence, and with tensor, context, pipeline or expert "
      "ranks choices are computed at data.seq_len; leave out data.choices, and score checkpoints with trireme evaluate",
      config::to_text(type)));
}

}  // namespace

void check_data(const config::RunConfig& given) {
  const config::RunConfig config = checkpoint::complete_model(given);
  const config::Data& data = config.data;
  std::int64_t ids = std::numeric_limits<std::int64_t>::max();
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  const std::string spec = data.tokenizer.empty() ? tokenizer_of_model(config.model.from) : data.tokenizer;
  const std::string described =
      data.tokenizer.empty() ? fmt::format("that of model.from is {}", spec) : "data.tokenizer is " + spec;
  if (!spec.empty()) tokenizer = tokenizer::make_tokenizer(spec);
  if (!data.tokenizer.empty()) {
    ids = tokenizer->vocab_size();
    if (data.check_tokenizer) compare_with_model(config, *tokenizer);
  }
  // The files are looked at, not their samples: packed ones may be shorter than a sequence.
  const data::FileTail tail =
      data.packing == config::Packing::best_fit ? data::FileTail::padded : data::FileTail::dropped;
  const auto train =
      data::open_datasets(data.train, data.weighted, data.format, data.seq_len, config.model.vocab_size, {}, tail);
  if (config.device.cuda_graphs && std::ranges::any_of(train, &data::Dataset::masked))
    throw ConfigError(
        "device.cuda_graphs replays a captured step, but data.train has a mask of targets (made by `tokenize "
        "--response` or `--chat`), so that the loss scale varies per step; set device.cuda_graphs = false");
  const auto check = [&](const std::vector<data::Dataset>& datasets) {
    data::require_document_ends(data, datasets);
    check_tokens(datasets, data.tokenizer, ids);
    if (tokenizer && data.check_tokenizer) {
      data::require_tokenizer(datasets, *tokenizer, described,
                              "set data.tokenizer to the file's, tokenize again, or set data.check_tokenizer = false");
      data::warn_of_other_ids(datasets, spec, *tokenizer);
    }
    if (data.document_mask) data::warn_of_document_ends(datasets, data.document_end);
  };
  check(train);
  if (config.train.eval_every > 0)
    check(data::open_datasets(data.validation, false, data.format, data.seq_len, config.model.vocab_size, {},
                              data::FileTail::padded));
  if (config.train.eval_every == 0) return;
  check_choices(config);
  for (const config::TokenSource& file : data.choices)
    (void)choices_of(*tokenizer, first_questions(file.path, config.train.choices_limit),
                     static_cast<std::size_t>(data.seq_len), file.path);
}

std::string preflight(config::RunConfig config, int ranks, int node_ranks) {
  config::require_trainable(config);
  check_optimizer(config, config.device.type == config::DeviceType::cuda);
  check_device(config.device);
  take_document_end(config.data);
  (void)config::resolve(config, ranks);  // before model.from is read
  config::RunConfig complete = checkpoint::complete_model(config);
  const auto [mesh, model] = planner::trainable(complete, ranks);
  const bool gpu = complete.device.type != config::DeviceType::cpu && !device::probe_gpus().gpus.empty();
  check_optimizer(complete, gpu);
  if (const std::optional<config::Sync> saved = saved_policy(complete, mesh)) {
    config.sync = *saved;
    log::info(fmt::format("sync.policy = auto: {}, as this run began", config::to_text(saved->policy)));
  } else {
    const planner::Machine machine = machine_of_rank(gpu);
    const planner::Choice choice = planner::choose_sync(planner::computing_on(complete, gpu), model, mesh,
                                                        planner::step_seconds_on(machine, ranks));
    config.sync = choice.sync;
    if (!choice.reason.empty()) log::info(choice.reason);
  }
  complete.sync = config.sync;
  if (mesh.pipeline > 1) (void)planner::build_pipeline_plan(complete, mesh);
  hint_at_schedule(config);
  if (gpu)
    check_host_memory(planner::predict_memory(planner::computing_on(complete, true), mesh), node_ranks,
                      checkpoint::available_host_memory());
  checkpoint::check_weights(complete, model);
  check_prefetch(complete, config::resolve(complete, ranks));
  if (!config::resolves_sources(complete)) check_data(complete);
  if (needs_hdf5(complete)) checkpoint::check_hdf5();
  check_output_directory(complete);
  hint_at_files(complete, model, mesh, node_ranks);
  return config::print_run_file(config);
}

}  // namespace trireme::train
