// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace trireme::mpi {

class Communicator;

/// The text of `root`, on every rank: one rank reads a file, not thousands. Collective over `communicator`.
[[nodiscard]] std::string broadcast_text(const Communicator& communicator, std::string text, int root = 0);

}  // namespace trireme::mpi
