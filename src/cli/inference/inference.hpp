// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/tokenizer/tokenizer.hpp"
#include "trireme/train/engine/job.hpp"

namespace CLI {
class App;
}

/// Opens models for commands that do not train.
namespace trireme::cli {

struct ModelArguments {
  std::string model;
  std::string tokenizer;  ///< empty: the model's
  std::string device = "auto";
};

/// Adds MODEL, --tokenizer (for `what`) and --device.
void add_model_options(CLI::App& command, ModelArguments& arguments, const std::string& what);

/// The weights at MODEL; warns of keys of its config.json that nothing follows. Throws CheckpointError.
[[nodiscard]] checkpoint::Weights open_weights(const ModelArguments& arguments, bool warns);

/// Whether --tokenizer or the model names a tokenizer.
[[nodiscard]] bool knows_tokenizer(const ModelArguments& arguments, const checkpoint::Weights& weights);

/// Warns if `tokenizer`, made from the `spec` of --tokenizer, produces other ids than the tokenizer recorded in
/// `model`, or cannot be compared with it.
void warn_of_another_tokenizer(const std::string& model, const checkpoint::Weights& weights, const std::string& spec,
                               const tokenizer::Tokenizer& tokenizer);

/// The tokenizer of --tokenizer, else of the model. warns: if it produces other ids than the model's own, or libraries
/// have other versions than for the training data. Throws CheckpointError when neither is known, ConfigError when it
/// has more ids than the model.
[[nodiscard]] std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const ModelArguments& arguments,
                                                                   const checkpoint::Weights& weights, bool warns);

/// A run file that only looks at the model, in fp32, on --device; mesh, batch and sequence are the caller's.
[[nodiscard]] config::RunConfig inference_config(const ModelArguments& arguments);

/// The same for one text at a time, on tensor-parallel ranks; the sequence is the caller's.
[[nodiscard]] config::RunConfig text_config(const ModelArguments& arguments, int ranks);

/// The prompt's tokens, after those that begin every document.
[[nodiscard]] std::vector<std::int32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const std::string& prompt);

/// The model with its weights, ready for a forward. `config`: complete. Collective over `world`. Throws
/// CheckpointError, EnvironmentError.
[[nodiscard]] std::unique_ptr<train::Job> open_model(const config::RunConfig& config, const mpi::Communicator& world);

/// The warning on a text that may grow to `wanted` tokens, of which the model sees the last `seq_len` at most; "" where
/// that is all.
[[nodiscard]] std::string long_text_warning(const std::string& model, std::int64_t wanted, std::int64_t seq_len);

/// Throws EnvironmentError when `available` memory of a node is less than its ranks' key/value caches of `tokens`
/// tokens take. needed: of one rank.
void check_cache_memory(Bytes needed, std::int64_t tokens, int ranks_on_node, Bytes available);
/// The same for the key/value cache of a text on CPUs; a GPU's allocator reports a lack of memory. Collective over
/// `world`.
void require_cache_memory(const train::Job& job, const mpi::Communicator& world);

}  // namespace trireme::cli
