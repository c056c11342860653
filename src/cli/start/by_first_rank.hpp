// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "trireme/mpi/communicator.hpp"

namespace trireme::cli {

/// What `work` returns on the first rank, on every rank; not empty. It reads files and calls no MPI. Where it throws
/// an Error every rank throws SharedError. While it makes progress, `mark` is called on every rank, some times in
/// `timeout_seconds`. Collective over `world`.
[[nodiscard]] std::string by_first_rank(const mpi::Communicator& world, double timeout_seconds,
                                        const std::function<std::string()>& work, const std::function<void()>& mark);

}  // namespace trireme::cli
