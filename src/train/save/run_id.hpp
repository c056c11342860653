// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "trireme/mpi/communicator.hpp"

namespace trireme::train {

/// A name for a run that begins, which no other run has: 16 hexadecimal digits, drawn by one rank. Collective.
[[nodiscard]] std::string new_run_id(const mpi::Communicator& world);

}  // namespace trireme::train
