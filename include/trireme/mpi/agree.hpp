// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Throws ConfigError on every rank, naming `key` and the ranks that are not with the majority, unless all ranks give
/// the same `text`, and showing the first line that differs. Collective over `communicator`; O(log ranks) when they
/// agree.
void agree(const Communicator& communicator, std::string_view key, std::string_view text);

/// The message for ranks whose hashes differ: the most frequent value is what the others are compared with (of equals:
/// the one of the lowest rank). hashes: by rank.
[[nodiscard]] std::string disagreement(std::string_view key, const std::vector<std::uint64_t>& hashes);

/// A value of a rank.
struct View {
  int rank = 0;
  std::string_view text;
};

/// The first line in which two texts differ, with its number from 1 and both its versions.
[[nodiscard]] std::string first_difference(const View& a, const View& b);

}  // namespace trireme::mpi
