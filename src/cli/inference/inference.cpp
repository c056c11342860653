// SPDX-License-Identifier: Apache-2.0
#include "cli/inference/inference.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/load/first_parameters.hpp"
#include "trireme/config/names.hpp"
#include "trireme/mpi/together.hpp"
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

std::string tokenizer_of(const ModelArguments& arguments, const checkpoint::Weights& weights) {
  return arguments.tokenizer.empty() ? weights.tokenizer() : arguments.tokenizer;
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

/// Where --device says, or where a GPU is.
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
  mpi::together(world, [&] {
    if (world.rank() == 0) checkpoint::check_weights(job->config(), job->model());
  });
  job->store().fill(checkpoint::first_parameters(job->config(), world));
  return job;
}

void check_cache_memory(Bytes needed, std::int64_t tokens, int ranks_on_node, Bytes available) {
  if (needed.value <= available.value / ranks_on_node) return;
  throw EnvironmentError(
      fmt::format("the key/value cache of {} tokens takes {} on each rank, and the ranks of this node ({}) share the "
                  "{} that it has left; "
                  "give fewer --tokens, or --no-cache, or use more nodes",
                  tokens, to_text(needed), ranks_on_node, to_text(available)));
}

}  // namespace trireme::cli
