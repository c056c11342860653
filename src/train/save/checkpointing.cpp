// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/save/checkpointing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "train/save/candidates.hpp"
#include "train/save/export.hpp"
#include "train/save/run_id.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/config/load.hpp"
#include "trireme/config/names.hpp"
#include "trireme/config/rules.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/train/setup/tuned_settings.hpp"

namespace trireme::train {
namespace {

/// fp32 in the host's memory.
at::Tensor values_of(store::ParameterStore& store, HostMirror& mirror, checkpoint::Quantity quantity,
                     ParamBlock block) {
  if (quantity != checkpoint::Quantity::parameter) return mirror.of(store.state(block, state_of(quantity)));
  return store.split_masters() ? mirror.of_split_masters(store, block) : mirror.of(store.master(block));
}

/// Generation settings of exports at the start of a run: `model.from` overrides data.seq_len and the tokenizer.
huggingface::HfWriteOptions first_export_options(const config::RunConfig& config) {
  const huggingface::HfWriteOptions options = export_options(config);
  if (config.model.from.empty()) return options;
  return with_given(options, checkpoint::Weights::open(config.model.from).generation());
}

}  // namespace

std::vector<std::string> changed_settings(const std::string& saved, const config::RunConfig& now) {
  constexpr std::array no_training{"run", "checkpoint", "metrics"};
  std::vector<std::string> lines;
  for (const auto& [section, key, before, after] : config::differences(config::read_effective(saved), now))
    if (std::ranges::find(no_training, section) == no_training.end())
      lines.push_back(
          fmt::format("{}.{}: saved {}, now {}", section, key, before.value_or("absent"), after.value_or("absent")));
  return lines;
}

bool saves_checkpoints(const config::RunConfig& config) {
  return config.checkpoint.every > 0 || config.checkpoint.at_end || config.checkpoint.keep_best.has_value();
}

checkpoint::Metadata data_metadata(const config::RunConfig& config, bool old) {
  const config::Data& data = config.data;
  checkpoint::Metadata metadata{{"data.seq_len", std::to_string(data.seq_len)},
                                {"data.shuffle", data.shuffle ? "true" : "false"}};
  if (data.shuffle) metadata.emplace_back("data.seed", std::to_string(data.seed.value_or(config.run.seed)));
  const bool packs = data.packing == config::Packing::best_fit;
  if (packs) metadata.emplace_back("data.packing", config::to_text(data.packing));
  const auto datasets =
      data::open_datasets(data.train, data.weighted, data.format, data.seq_len, config.model.vocab_size, {},
                          packs ? data::FileTail::padded : data::FileTail::dropped);
  std::size_t n = 0;
  for (const data::Dataset& dataset : datasets)
    for (const data::TokenFile& file : dataset.files()) {
      metadata.emplace_back(
          fmt::format("data.train[{}]", n),
          fmt::format("{} tokens, contents {:016x}", file.tokens(), old ? file.old_fingerprint() : file.fingerprint()));
      if (packs && file.sidecar())  // a Megatron index is part of the contents
        metadata.emplace_back(fmt::format("data.train[{}].documents", n),
                              fmt::format("{}, ends {}", file.documents(), file.sidecar()->ends_xxh3));
      if (data.weighted)
        metadata.emplace_back(fmt::format("data.train[{}].weight", n), fmt::format("{}", data.train[n].weight));
      ++n;
    }
  return metadata;
}

checkpoint::Shards shards_of(Job& job, const std::shared_ptr<HostMirror>& mirror) {
  const mesh::Mesh mesh = job.mesh().of_storage();
  return {.model = job.model(),
          .whole = &job.whole_model(),
          .layout = job.layout(),
          .mesh = mesh,
          .at = mesh.coordinates(job.mesh().rank_of(job.at())),
          .values =
              [&job, mirror](checkpoint::Quantity quantity, ParamBlock block) {
                const at::Tensor tensor = values_of(job.store(), *mirror, quantity, block);
                return std::span(tensor.mutable_data_ptr<float>(), static_cast<std::size_t>(tensor.numel()));
              },
          .optimizer = optimizer::OptimizerPlan(job.config())};
}

Checkpointing::Checkpointing(Job& job, const mpi::Communicator& world, int threads)
    : job_(job), world_(world.duplicate()), threads_(threads), background_(world) {}

bool Checkpointing::due_after(std::int64_t step) const {
  const config::Checkpoint& options = job_.config().checkpoint;
  return (options.every > 0 && (step + 1) % options.every == 0) ||
         (options.at_end && step + 1 == job_.config().train.steps);
}

checkpoint::State Checkpointing::fresh() {
  job_.store().fill(checkpoint::first_parameters(job_.config(), world_, shards_of(job_)));
  checkpoint::State state;
  state.run_id = new_run_id(world_);
  state.samples = job_.config().data.skip_to.value_or(0);
  if (state.samples > 0) state.skipped_samples = {{.step = 0, .first = 0, .end = state.samples}};
  return state;
}

/// Takes the export options of the model that the run at `path` began from. Checkpoints of earlier builds lack its
/// keys: then those of `model.from` stay.
void Checkpointing::keep_generation(const std::string& path, const checkpoint::Metadata& saved) {
  huggingface::HfWriteOptions options, given{.max_position_embeddings = 0};
  checkpoint::read_generation(path, saved, given);
  checkpoint::read_generation(path, generation_, options);
  if (world_.rank() == 0 && (!given.kept.empty() || job_.config().model.from.empty()))
    generation_ = checkpoint::generation_metadata(with_given(options, given));
}

namespace {

/// Refuses another number of tokens a step than before, if lengths are given in tokens: the steps done would no longer
/// be the tokens done.
void check_lengths(const std::string& path, const checkpoint::State& state, const config::RunConfig& config) {
  const std::int64_t step = config.batch.global * config.data.seq_len;
  if (state.tokens == state.step * step) return;
  std::vector<std::string> keys;
  for (const config::InTokens& length : config::lengths_in_tokens(config))
    if (length.tokens) keys.emplace_back(length.tokens_key);
  if (keys.empty()) return;
  throw CheckpointError(
      fmt::format("{} has {} tokens in {} steps, a step of this run has {}: {} cannot continue with another batch. "
                  "Restore batch.global and data.seq_len, or give the lengths in steps.",
                  path, state.tokens, state.step, step, join(keys, ", ")));
}

}  // namespace

/// Refuses other data than the run was trained on, or begins at their first sample where the run file allows it.
void Checkpointing::check_data(const std::string& path, checkpoint::State& state) const {
  if (state.data.empty()) return;  // imported: trained on none
  const bool restarts = job_.config().checkpoint.data == config::DataOnResume::restart;
  const auto restart = [&](const char* why) {
    if (world_.rank() == 0)
      log::warning(fmt::format("checkpoint.data = restart: {}; starting at the first sample", why));
    state.samples = 0;
    state.taken.clear();
  };
  const std::vector<std::string> lines = checkpoint::differences(state.data, data_);
  if (lines.empty()) {
    if (restarts && path == job_.config().checkpoint.resume) return restart("another run begins with this checkpoint");
    if (restarts && world_.rank() == 0)
      log::info("checkpoint.data = restart is not needed: the training data is the checkpoint's, and continues");
    return;
  }
  if (state.run_id.empty()) {
    const bool differs = !checkpoint::differences(state.data, data_metadata(job_.config(), true)).empty();
    if (!mpi::any_rank(world_, differs)) return;
  }
  if (!restarts)
    throw CheckpointError(
        fmt::format("{} was trained on other data: {}. Give the token files and [data] as they were, or set "
                    "checkpoint.data = restart to begin at the first sample of what is there now.",
                    path, join(lines, "; ")));
  restart("training data changed");
}

/// Logs the keys of the run file that differ from the checkpoint and were not refused: they are in force after it.
void Checkpointing::say_what_changed(const std::string& saved) const {
  if (world_.rank() != 0 || saved.empty()) return;
  try {
    const std::vector<std::string> lines = changed_settings(saved, job_.config());
    if (!lines.empty()) log::info(fmt::format("settings changed since the checkpoint: {}", join(lines, "; ")));
  } catch (const ConfigError& error) {
    log::warning(fmt::format("settings are not compared with the checkpoint's: {}", error.what()));
  }
}

checkpoint::State Checkpointing::resumed(const std::string& path, const checkpoint::Manifest& manifest) {
  checkpoint::State state = manifest.state;
  check_lengths(path, state, job_.config());
  check_data(path, state);
  keep_generation(path, state.generation);
  const std::vector<std::string> other = restore_tuned_settings(world_, state.tuned_settings, threads_);
  if (!other.empty() && manifest.mesh == job_.mesh().of_storage() && world_.rank() == 0)
    log::warning(fmt::format("automatic settings differ from the checkpoint's, so the run does not resume bitwise: {}",
                             join(other, "; ")));
  for (int b = 0; b < job_.model().param_blocks(); ++b) job_.store().derive_compute_shard(ParamBlock{b});
  job_.restore(state.updates);
  if (const std::int64_t skip_to = job_.config().data.skip_to.value_or(0); skip_to > state.samples) {
    if (world_.rank() == 0) log::info(fmt::format("data.skip_to: skipping samples {} to {}", state.samples, skip_to));
    state.skipped_samples.push_back({.step = state.step, .first = state.samples, .end = skip_to});
    state.samples = skip_to;
    state.taken.clear();
  }
  say_what_changed(state.run_file);
  // Another run starts from a checkpoint that `resume` names: files there belong to the run that saved it.
  if (path == job_.config().checkpoint.resume || state.run_id.empty()) state.run_id = new_run_id(world_);
  base_step_ = state.step;
  saved_step_ = path.starts_with(job_.config().checkpoint.directory + "/") ? state.step : -1;
  if (world_.rank() == 0) log::info(fmt::format("resuming from {}: step {}", path, state.step));
  return state;
}

checkpoint::State Checkpointing::begin() {
  // Lines: a key and a value for each entry of the data's metadata, an empty one, the checkpoints to try.
  const std::vector<std::string> lines = lines_of(mpi::on_first_rank(world_, "find a checkpoint to resume from", [&] {
    std::string text;
    for (const auto& [key, value] : data_metadata(job_.config())) text += key + "\n" + value + "\n";
    text += "\n" + resume_candidates(job_.config());
    generation_ = checkpoint::generation_metadata(first_export_options(job_.config()));
    return text;
  }));
  data_.clear();
  std::size_t at = 0;
  for (; !lines[at].empty(); at += 2) data_.emplace_back(lines[at], lines[at + 1]);
  const std::vector<std::string> paths(lines.begin() + static_cast<std::ptrdiff_t>(at) + 1, lines.end());
  if (paths.empty()) {
    find_best(0);
    return fresh();
  }
  try {
    checkpoint::State state = resumed(paths);
    find_best(state.step);
    return state;
  } catch (const CheckpointError& error) {  // the manifest is the same on every rank
    throw mpi::CollectiveError(world_, error);
  }
}

checkpoint::State Checkpointing::resumed(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    try {
      const auto mirror = std::make_shared<HostMirror>(HostMirror::Keeps::all);
      const checkpoint::Manifest manifest = checkpoint::load(world_, path, shards_of(job_, mirror));
      mirror->put_back(job_.store());
      return resumed(path, manifest);
    } catch (const checkpoint::Damaged& damaged) {
      if (job_.config().checkpoint.resume != "auto" && path == paths.back()) throw;
      if (world_.rank() == 0) log::warning(fmt::format("{} cannot be used: {}", path, damaged.what()));
    }
  }
  throw CheckpointError(
      fmt::format("none of the {} checkpoints in {} can be used; see the warnings above. Move them away to start over.",
                  paths.size(), job_.config().checkpoint.directory));
}

}  // namespace trireme::train
