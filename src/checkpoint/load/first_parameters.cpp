// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/first_parameters.hpp"

#include <algorithm>
#include <memory>

#include "trireme/checkpoint/load/weights.hpp"
#include "trireme/huggingface/complete_model.hpp"
#include "trireme/huggingface/huggingface.hpp"

namespace trireme::checkpoint {
namespace {

config::RunConfig completed(config::RunConfig config, const config::Model& model) {
  config.model = huggingface::merge_model_config(config.model, model);
  return huggingface::with_derived_sizes(std::move(config));
}

store::ParameterInitializer provider(checkpoint::Weights opened) {
  auto weights = std::make_shared<checkpoint::Weights>(std::move(opened));
  // A transposed parameter is read once as a whole: a tensor rank would read many short runs of it.
  auto whole = std::make_shared<std::pair<std::string, std::vector<float>>>();
  return [weights, whole](const model::Parameter& parameter, shard::Range elements, std::span<float> out) {
    if (!parameter.transposed_in_files) return weights->read(parameter, elements, out);
    auto& [name, values] = *whole;
    if (name != parameter.name) {
      values.resize(static_cast<std::size_t>(parameter.full_elements()));
      weights->read(parameter, {.begin = 0, .end = parameter.full_elements()}, values);
      name = parameter.name;
    }
    std::copy_n(values.begin() + elements.begin, elements.size(), out.begin());
  };
}

}  // namespace

config::RunConfig complete_model(config::RunConfig config) {
  if (config.model.from.empty()) return huggingface::with_derived_sizes(std::move(config));
  const config::Model model = checkpoint::model_of_weights(config.model.from);
  return completed(std::move(config), model);
}

config::RunConfig complete_model(config::RunConfig config, const mpi::Communicator& world) {
  if (config.model.from.empty()) return huggingface::with_derived_sizes(std::move(config));
  const config::Model model = checkpoint::Weights::open(world, config.model.from).model();
  return completed(std::move(config), model);
}

void check_weights(const config::RunConfig& config, const model::Model& model) {
  if (!config.model.from.empty()) checkpoint::Weights::open(config.model.from).check(model);
}

store::ParameterInitializer first_parameters(const config::RunConfig& config) {
  if (config.model.from.empty()) return store::initial_values(config.run.seed);
  return provider(checkpoint::Weights::open(config.model.from));
}

store::ParameterInitializer first_parameters(const config::RunConfig& config, const mpi::Communicator& world,
                                             const Shards& shards) {
  if (config.model.from.empty()) return store::initial_values(config.run.seed);
  return provider(checkpoint::Weights::open(world, config.model.from, &shards));
}

}  // namespace trireme::checkpoint
