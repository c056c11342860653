// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::mpi {

class Communicator;

/// Throws CollectiveError with exit code 2 unless `text` is equal on all ranks,
/// with `what`, the ranks that differ from the majority, and the first line that
/// differs. Collective over `communicator`; one all-reduce if they are equal.
void require_equal(const Communicator& communicator, std::string_view what, std::string_view text);

/// The message for ranks whose hashes differ: the others are compared with the most frequent value (of equally frequent
/// ones, the lowest rank's). hashes: by rank.
[[nodiscard]] std::string disagreement(std::string_view what, const std::vector<std::uint64_t>& hashes);

/// The text of a rank.
struct View {
  int rank = 0;
  std::string_view text;
};

/// The first line in which two texts differ, with its number from 1 and both its versions.
[[nodiscard]] std::string first_difference(const View& a, const View& b);

}  // namespace trireme::mpi
