// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/weights.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/facts.hpp"

namespace trireme::checkpoint {

namespace fs = std::filesystem;

Weights Weights::open(const std::string& path) {
  Weights weights;
  weights.path_ = path;
  std::error_code error;
  if (fs::exists(index_path(path), error)) {
    Manifest manifest = open_checkpoint(path);
    weights.model_ = model_of(index_path(path), manifest.model);
    weights.generation_.max_position_embeddings = 0;
    read_generation(index_path(path), manifest.state.generation, weights.generation_);
    weights.checkpoint_ = std::make_unique<Reader>(path, std::move(manifest));
    return weights;
  }
  if (!is_huggingface(path))
    throw CheckpointError(
        fmt::format("{}: holds no weights: neither config.json (a Hugging Face directory) nor index.h5 (a checkpoint); "
                    "check the path",
                    path));
  weights.directory_ = HfDirectory::open(path);
  const HfConfig& config = weights.directory_->config();
  weights.model_ = config.model;
  weights.generation_.max_position_embeddings = config.max_position_embeddings;
  weights.generation_.bos_token_id = config.bos_token_id;
  weights.generation_.eos_token_ids = config.eos_token_ids;
  return weights;
}

void Weights::check(const model::Model& model) const {
  if (directory_) return directory_->check(model);
  check_model(path_, checkpoint_->manifest(), model);
}

void Weights::read(const model::Parameter& parameter, shard::Range elements, std::span<float> values) const {
  if (directory_) return directory_->read_slice(parameter, elements, values);
  checkpoint_->read(Quantity::parameter, parameter.name, shard::Runs::of(elements), values);
}

}  // namespace trireme::checkpoint
