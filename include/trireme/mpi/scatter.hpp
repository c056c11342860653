// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Each rank's own text of those that rank 0 has, by rank; `texts` is read there only. No rank receives more than its
/// own text and 16 bytes. most_per_call: bytes that rank 0 sends, which MPI counts in int. Collective over
/// `communicator`.
[[nodiscard]] std::string scatter_texts(const Communicator& communicator, std::vector<std::string> texts,
                                        std::size_t most_per_call = std::size_t{1} << 30);

}  // namespace trireme::mpi
