// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/checkpoint/save/save.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/model/model.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::checkpoint {

/// The run file's model with every size known: from the weights of `model.from` if it is given, defaults filled in.
/// Throws ConfigError or CheckpointError.
[[nodiscard]] config::RunConfig complete_model(config::RunConfig config);

/// Throws CheckpointError unless `model.from`'s weights fit `model`, all mistakes at once. For one rank: it may read
/// much.
void check_weights(const config::RunConfig& config, const model::Model& model);

/// Source of a job's initial parameters: the weights of `model.from`, or initial values.
[[nodiscard]] store::ParameterInitializer first_parameters(const config::RunConfig& config);

/// `complete_model` for all ranks of `world`: one of them reads the metadata of a checkpoint in `model.from`.
/// Collective.
[[nodiscard]] config::RunConfig complete_model(config::RunConfig config, const mpi::Communicator& world);

/// `first_parameters` of each rank's `shards` for all ranks of `world`, in the same way. Collective.
[[nodiscard]] store::ParameterInitializer first_parameters(const config::RunConfig& config,
                                                           const mpi::Communicator& world, const Shards& shards);

}  // namespace trireme::checkpoint
