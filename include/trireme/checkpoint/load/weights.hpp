// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/checkpoint/load/load.hpp"
#include "trireme/checkpoint/save/save.hpp"
#include "trireme/huggingface/huggingface.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::checkpoint {

/// Whether there is a checkpoint, complete or not, at `path`.
[[nodiscard]] bool is_checkpoint(const std::string& path);

/// Initial weights from a Hugging Face directory or
/// a checkpoint. Every rank reads its own slices.
class Weights {
 public:
  /// Reads the metadata. Throws CheckpointError, also when `path` is neither.
  [[nodiscard]] static Weights open(const std::string& path);
  /// The same for all ranks of `world`; one of them reads a checkpoint's metadata. read: the shards of parameters that
  /// this rank will read, no others; null: none. Collective.
  [[nodiscard]] static Weights open(const mpi::Communicator& world, const std::string& path,
                                    const Shards* read = nullptr);

  /// The [model] section of the weights; without `from`.
  [[nodiscard]] const config::Model& model() const { return model_; }
  /// Settings of generation; max_position_embeddings is 0 if it is absent.
  [[nodiscard]] const huggingface::HfWriteOptions& generation() const { return generation_; }
  /// The effective run file of the run that saved them; empty if there was none.
  [[nodiscard]] const std::string& run_file() const { return run_file_; }
  /// Logs a warning of keys of config.json that nothing here follows, if there are any.
  void warn_of_unread_keys() const;
  /// The spec of the tokenizer that they were trained with. Throws CheckpointError when it is absent, or when its
  /// file is missing or another one now.
  [[nodiscard]] std::string tokenizer() const;
  /// Throws CheckpointError with the differences from `model`.
  void check(const model::Model& model) const;
  /// Reads `elements` (row-major) of a parameter into `values`. Throws CheckpointError.
  void read(const model::Parameter& parameter, shard::Range elements, std::span<float> values) const;

 private:
  Weights() = default;
  [[nodiscard]] static Weights of(const std::string& path, Manifest manifest);

  std::string path_;
  config::Model model_;
  huggingface::HfWriteOptions generation_;
  std::string run_file_;
  std::optional<huggingface::HfDirectory> directory_;  ///< one of the two
  std::unique_ptr<Reader> checkpoint_;
};

/// Writes the weights at `from` as a checkpoint `path` of step 0: AdamW's moments are zero, no sample is consumed.
/// Holds one block of parameters in memory. Collective over `alone`, of one rank. Throws CheckpointError (also when
/// `path` exists) and WriteError.
Saved import_weights(const mpi::Communicator& alone, const Weights& from, const std::string& path);

/// The [model] that a checkpoint or a Hugging Face directory describes; of the latter config.json suffices. Warns of
/// its unread keys. Throws CheckpointError.
[[nodiscard]] config::Model model_of_weights(const std::string& path);

}  // namespace trireme::checkpoint
