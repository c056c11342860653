// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/weights.hpp"

#include <fmt/format.h>

#include "checkpoint/load/share.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/io/file.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/config/load.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/tokenizer/files.hpp"

namespace trireme::checkpoint {

namespace {

/// data.tokenizer of an effective run file: checkpoints of earlier builds have it only there.
std::string tokenizer_in(const std::string& run_file) try {
  return run_file.empty() ? "" : config::parse_run_file(run_file, "the run file of the checkpoint").data.tokenizer;
} catch (const ConfigError&) {  // of another version
  return "";
}

}  // namespace

bool is_checkpoint(const std::string& path) { return io::status_of(index_path(path)).kind != io::PathKind::nothing; }

Weights Weights::of(const std::string& path, Manifest manifest) {
  Weights weights;
  weights.path_ = path;
  weights.model_ = model_of(index_path(path), manifest);
  weights.generation_.max_position_embeddings = 0;
  read_generation(index_path(path), manifest.state.generation, weights.generation_);
  if (weights.generation_.tokenizer.empty()) weights.generation_.tokenizer = tokenizer_in(manifest.state.run_file);
  weights.run_file_ = manifest.state.run_file;
  weights.checkpoint_ = std::make_unique<Reader>(path, std::move(manifest));
  return weights;
}

Weights Weights::open(const mpi::Communicator& world, const std::string& path, const Shards* read) {
  if (!mpi::any_rank(world, world.rank() == 0 && is_checkpoint(path))) return open(path);
  const Manifest whole = world.rank() == 0 ? open_checkpoint(path) : Manifest{};
  Manifest manifest = share_head(world, whole);
  if (read != nullptr)
    manifest.files = share_part(world, whole, request_for(manifest, *read, Reads::first_values), *read).files;
  return of(path, std::move(manifest));
}

Weights Weights::open(const std::string& path) {
  if (is_checkpoint(path)) return of(path, open_checkpoint(path));
  const io::PathKind kind = io::status_of(path).kind;
  if ((kind == io::PathKind::directory && !huggingface::is_huggingface(path) &&
       !(list_checkpoints(path).empty() && list_checkpoints(path + "/checkpoints").empty())) ||
      (kind == io::PathKind::nothing && !checkpoints_beside(path).empty()))
    (void)open_manifest_text(path);  // throws: its message lists the checkpoints that there are
  if (!huggingface::is_huggingface(path) && io::status_of(path + "/adapter_config.json").kind == io::PathKind::file)
    throw CheckpointError(
        fmt::format("{}: holds an adapter of PEFT, not a model; merge it into its base model (merge_and_unload, "
                    "save_pretrained) and give that directory",
                    path));
  if (!huggingface::is_huggingface(path))
    throw CheckpointError(
        fmt::format("{}: holds no weights: neither config.json (a Hugging Face directory) nor index.h5 (a checkpoint); "
                    "check the path",
                    path));
  Weights weights;
  weights.path_ = path;
  weights.directory_ = huggingface::HfDirectory::open(path);
  require_layers(path, weights.directory_->config().model, weights.directory_->names().size());
  const huggingface::HfConfig& config = weights.directory_->config();
  weights.model_ = config.model;
  weights.generation_.max_position_embeddings = config.max_position_embeddings;
  weights.generation_.bos_token_id = config.bos_token_id;
  weights.generation_.eos_token_ids = config.eos_token_ids;
  weights.generation_.kept = config.kept;
  weights.generation_.kept_generation = config.kept_generation;
  weights.generation_.tokenizer = tokenizer::absolute_spec(tokenizer::spec_in_directory(path));
  weights.generation_.tokenizer_library = tokenizer::library_in_directory(path);
  return weights;
}

config::Model model_of_weights(const std::string& path) {
  if (is_checkpoint(path) || !huggingface::is_huggingface(path)) return Weights::open(path).model();
  const huggingface::HfConfig config = huggingface::read_hf_config(path);
  huggingface::warn_of_unread_keys(config, path);
  return config.model;
}

void Weights::warn_of_unread_keys() const {
  if (directory_) huggingface::warn_of_unread_keys(directory_->config(), path_);
}

std::string Weights::tokenizer() const {
  const std::string& spec = generation_.tokenizer;
  if (spec.empty())
    throw CheckpointError(
        fmt::format("{}: holds no tokenizer and names none; give the one that made its training data: --tokenizer "
                    "bytes, spm:PATH or hf:PATH",
                    path_));
  if (generation_.tokenizer_fingerprint.empty()) return spec;
  try {
    if (tokenizer::has_fingerprint(spec, generation_.tokenizer_fingerprint)) return spec;
  } catch (const DataError& error) {
    throw CheckpointError(
        fmt::format("{}: its tokenizer cannot be read, or has changed since it was saved: {}; give it by --tokenizer",
                    path_, error.what()));
  }
  throw CheckpointError(
      fmt::format("{}: its tokenizer {}, or a file in its folder, has changed since it was saved; give the original "
                  "one by --tokenizer",
                  path_, spec));
}

void Weights::check(const model::Model& model) const {
  if (directory_) return directory_->check(model);
  check_model(path_, checkpoint_->manifest(), model);
}

void Weights::read(const model::Parameter& parameter, shard::Range elements, std::span<float> values) const {
  if (directory_) return directory_->read_slice(parameter, elements, values);
  checkpoint_->read(Quantity::parameter, parameter.name, shard::Hyperslab::of(elements), values);
}

}  // namespace trireme::checkpoint
