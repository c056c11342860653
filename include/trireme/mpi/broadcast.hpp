// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::mpi {

class Communicator;

/// The text of `root`, on every rank, so that one rank reads a file, not thousands. most_per_call: bytes, which MPI
/// counts in int. what: for the report of a hang. Collective over `communicator`.
[[nodiscard]] std::string broadcast_text(const Communicator& communicator, std::string text, int root = 0,
                                         std::size_t most_per_call = std::size_t{1} << 30,
                                         std::string_view what = "broadcast a text");

}  // namespace trireme::mpi
