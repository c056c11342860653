// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/inference.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/checkpoint/save/staging.hpp"
#include "trireme/config/names.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/topology.hpp"
#include "trireme/tokenizer/files.hpp"
#include "trireme/tokenizer/identity.hpp"
#include "trireme/tokenizer/library.hpp"
#include "trireme/train/save/checkpointing.hpp"
#include "trireme/train/setup/compute_device.hpp"

namespace trireme::cli {

void add_model_options(CLI::App& command, ModelArguments& arguments, const std::string& what) {
  command.add_option("MODEL", arguments.model, "A checkpoint, or a Hugging Face directory such as the export of a run")
      ->required();
  command.add_option(
      "--tokenizer", arguments.tokenizer,
      fmt::format("bytes, spm:PATH or hf:PATH, {}; default: the tokenizer that MODEL was trained with", what));
  command.add_option("--device", arguments.device, "Device: auto (GPU if every rank has one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

checkpoint::Weights open_weights(const ModelArguments& arguments, bool warns) {
  checkpoint::Weights weights = checkpoint::Weights::open(arguments.model);
  if (warns) weights.warn_of_unread_keys();
  return weights;
}

bool knows_tokenizer(const ModelArguments& arguments, const checkpoint::Weights& weights) {
  return !arguments.tokenizer.empty() || !weights.generation().tokenizer.empty();
}

void warn_of_another_tokenizer(const std::string& model, const checkpoint::Weights& weights, const std::string& spec,
                               const tokenizer::Tokenizer& tokenizer) {
  const std::string& known = weights.generation().tokenizer;
  const std::string& saved = weights.generation().tokenizer_fingerprint;
  if (known.empty()) return;
  std::string why_not;
  try {
    if (!saved.empty() && tokenizer::has_fingerprint(spec, saved)) return;
    if (saved.empty() || tokenizer::has_fingerprint(known, saved)) {
      const std::string differs = tokenizer::difference(known, *tokenizer::make_tokenizer(known), spec, tokenizer);
      if (!differs.empty())
        log::warning(fmt::format("--tokenizer {} {}, but {} was trained with {}: leave --tokenizer out", spec, differs,
                                 model, known));
      return;
    }
    why_not = "it has changed since";
  } catch (const Error& error) {  // of a file that is there no more
    why_not = error.what();
  }
  log::warning(fmt::format("--tokenizer {} cannot be compared with {}, with which {} was trained: {}", spec, known,
                           model, why_not));
}

namespace {

/// Warns of library versions that may produce other ids than those of the training data.
void warn_of_other_libraries(const std::string& model, const checkpoint::Weights& weights, const std::string& spec) {
  const std::vector<std::string> others =
      tokenizer::other_versions(weights.generation().tokenizer_library, tokenizer::library_of(spec));
  if (!others.empty())
    log::warning(fmt::format(
        "{}: the tokenizer of its training used {}: versions may give other ids where two tokenizations score alike",
        model, join(others, "; ")));
}

}  // namespace

std::unique_ptr<tokenizer::Tokenizer> open_tokenizer(const ModelArguments& arguments,
                                                     const checkpoint::Weights& weights, bool warns) {
  const std::string spec = arguments.tokenizer.empty() ? weights.tokenizer() : arguments.tokenizer;
  auto tokenizer = tokenizer::make_tokenizer(spec);
  const std::int64_t ids = tokenizer->vocab_size();
  if (ids > weights.model().vocab_size)
    throw ConfigError(fmt::format(
        "tokenizer {} has {} ids, but {} was trained with a vocabulary of {}; give the tokenizer that made its "
        "training data by --tokenizer",
        spec, ids, arguments.model, weights.model().vocab_size));
  if (!warns) return tokenizer;
  if (!arguments.tokenizer.empty()) warn_of_another_tokenizer(arguments.model, weights, spec, *tokenizer);
  warn_of_other_libraries(arguments.model, weights, spec);
  for (const std::string& line : tokenizer->warnings()) log::warning(line);
  return tokenizer;
}

config::RunConfig inference_config(const ModelArguments& arguments) {
  config::RunConfig config;
  config.model.from = arguments.model;
  config.precision.compute = DType::fp32;
  for (const auto& [type, name] : config::names_of(config::DeviceType{}))
    if (arguments.device == name) config.device.type = type;
  return config;
}

namespace {

/// The device of --device, or a GPU if there is one.
train::ComputeDevice chosen_device(const config::RunConfig& config, const mpi::Communicator& world) {
  try {
    return train::choose_device(config, world);
  } catch (const EnvironmentError& error) {  // it names the run file's key
    throw EnvironmentError(fmt::format("{} (device.type is set with --device)", error.what()));
  }
}

}  // namespace

std::unique_ptr<train::Job> open_model(const config::RunConfig& config, const mpi::Communicator& world) {
  const train::ComputeDevice on = chosen_device(config, world);
  auto job = std::make_unique<train::Job>(config, world,
                                          train::JobOptions{.device = on.device, .link = on.link, .trains = false});
  mpi::collective_try(world, "check the weights", [&] {
    if (world.rank() == 0) checkpoint::check_weights(job->config(), job->model());
  });
  job->store().fill(checkpoint::first_parameters(job->config(), world, train::shards_of(*job)));
  return job;
}

std::string long_text_warning(const std::string& model, std::int64_t wanted, std::int64_t seq_len) {
  if (wanted <= seq_len) return "";
  return fmt::format(
      "{}: prompt and --tokens come to {} tokens, but the model was trained on at most {} (max_position_embeddings): "
      "beyond them it sees the last {} to {} tokens of the text only; give fewer --tokens to stay within",
      model, wanted, seq_len, std::max<std::int64_t>(1, seq_len / 2), seq_len);
}

void check_cache_memory(Bytes needed, std::int64_t tokens, int ranks_on_node, Bytes available) {
  if (needed.value <= available.value / ranks_on_node) return;
  throw EnvironmentError(
      fmt::format("the key/value cache of {} tokens takes {} on each rank, and the ranks of this node ({}) share the "
                  "{} that it has left; give fewer --tokens, or --no-cache, or use more nodes",
                  tokens, to_text(needed), ranks_on_node, to_text(available)));
}

void require_cache_memory(const train::Job& job, const mpi::Communicator& world) {
  if (job.options().device.is_cuda()) return;
  const mpi::Topology topology = mpi::probe_topology(world);
  mpi::collective_try(world, "check the memory for the cache", [&] {
    check_cache_memory(job.kv_cache_bytes(1), job.config().data.seq_len, topology.node_ranks,
                       checkpoint::available_host_memory());
  });
}

config::RunConfig text_config(const ModelArguments& arguments, int ranks) {
  config::RunConfig config = inference_config(arguments);
  config.batch = {.global = 1, .micro = 1};
  config.mesh = {.replicate = 1, .shard = 1, .tensor = ranks};
  if (ranks > 1) config.mesh.sequence_parallel = false;  // a text grows by one token
  return config;
}

std::vector<std::int32_t> prompt_ids(const tokenizer::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> ids = tokenizer.document_begin();
  const std::vector<std::int32_t> text = tokenizer.encode(prompt);
  ids.insert(ids.end(), text.begin(), text.end());
  return ids;
}

}  // namespace trireme::cli
