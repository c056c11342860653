// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Every rank's text, by rank, on rank 0; nothing elsewhere. Collective over `communicator`.
[[nodiscard]] std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& text);

/// Whether `flag` is set on any rank. Collective over `communicator`.
[[nodiscard]] bool any_rank(const Communicator& communicator, bool flag);

/// Sum over the ranks, modulo 2^64. Collective over `communicator`.
[[nodiscard]] std::uint64_t sum_words(const Communicator& communicator, std::uint64_t word);

}  // namespace trireme::mpi
