// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/config/run_config.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::cli {

/// The run with token files in place of its text, which all ranks tokenize where no cache has it, and with the weights
/// of its mixture. mark: called on every rank while there is progress. Collective over `world`.
[[nodiscard]] config::RunConfig with_tokens(const mpi::Communicator& world, config::RunConfig config,
                                            double timeout_seconds, const std::function<void()>& mark);

}  // namespace trireme::cli
