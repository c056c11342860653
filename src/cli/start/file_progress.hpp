// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "trireme/mpi/collective_try.hpp"

namespace trireme::cli {

/// Progress of work that reads and writes files: while bytes move, the first rank reports it to the others, some times
/// in `timeout_seconds`, and `mark` is called on every rank.
[[nodiscard]] mpi::Progress file_progress(double timeout_seconds, std::function<void()> mark);

}  // namespace trireme::cli
