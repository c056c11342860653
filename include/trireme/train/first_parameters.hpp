// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/comm/communicator.hpp"
#include "trireme/config/run_config.hpp"
#include "trireme/store/parameter_store.hpp"

namespace trireme::train {

/// `complete_model` for all ranks of `world`: one of them reads what describes a checkpoint in `model.from`.
/// Collective.
[[nodiscard]] config::RunConfig complete_model(config::RunConfig config, const comm::Communicator& world);

/// `first_parameters` for all ranks of `world`, in the same way. Collective.
[[nodiscard]] store::Provider first_parameters(const config::RunConfig& config, const comm::Communicator& world);

}  // namespace trireme::train
