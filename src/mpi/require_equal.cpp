// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/require_equal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "mpi/await.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/hash.hpp"
#include "trireme/base/text.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/collective_try.hpp"
#include "trireme/mpi/communicator.hpp"

namespace trireme::mpi {
namespace {

constexpr std::size_t shown = 200;  // characters of a line that differs

std::uint64_t majority(const std::vector<std::uint64_t>& hashes) {
  std::map<std::uint64_t, int> counts;
  for (const std::uint64_t hash : hashes) ++counts[hash];
  std::uint64_t best = hashes.front();
  for (const std::uint64_t hash : hashes)
    if (counts[hash] > counts[best]) best = hash;
  return best;
}

// "rank 3", "ranks 1, 2 and 5 more".
std::string names(const std::vector<int>& ranks) {
  constexpr std::size_t most = 8;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i) first.push_back(std::to_string(ranks[i]));
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", join(first, ", "),
                     ranks.size() > most ? fmt::format(" and {} more", ranks.size() - most) : "");
}

std::vector<int> ranks_where(const std::vector<std::uint64_t>& hashes, auto&& holds) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < hashes.size(); ++rank)
    if (holds(hashes[rank])) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

std::string disagreement(std::string_view what, const std::vector<std::uint64_t>& hashes) {
  const std::uint64_t common = majority(hashes);
  const std::vector<int> with = ranks_where(hashes, [&](std::uint64_t hash) { return hash == common; });
  const std::vector<int> odd = ranks_where(hashes, [&](std::uint64_t hash) { return hash != common; });
  return fmt::format(
      "The ranks do not agree on {}: {} differ{} from {}. Start every rank with the same run file, the same files and "
      "the same build.",
      what, names(odd), odd.size() == 1 ? "s" : "", names(with));
}

std::string first_difference(const View& a, const View& b) {
  std::string_view rest_a = a.text, rest_b = b.text;
  for (int line = 1; !rest_a.empty() || !rest_b.empty(); ++line) {
    const std::string_view from_a = next_line(rest_a), from_b = next_line(rest_b);
    if (from_a == from_b) continue;
    return fmt::format("Line {}: rank {} has `{}`, rank {} has `{}`.", line, a.rank, from_a.substr(0, shown), b.rank,
                       from_b.substr(0, shown));
  }
  return "They differ in the ends of their lines.";
}

void require_equal(const Communicator& communicator, std::string_view what, std::string_view text) {
  const std::uint64_t hash = fnv1a(text);
  // The bits that all hashes have, and that all complements have: every bit is in one of both only if all are equal.
  // (A minimum would do, but MPICH 4.0 compares unsigned words as signed ones.)
  const std::array<std::uint64_t, 2> mine{hash, ~hash};
  std::array<std::uint64_t, 2> common_bits{};
  const std::string comparing = fmt::format("compare {}", what);
  MPI_Request request = MPI_REQUEST_NULL;
  await(communicator,
        MPI_Iallreduce(mine.data(), common_bits.data(), 2, MPI_UINT64_T, MPI_BAND, communicator.handle(), &request),
        request, comparing);
  if (common_bits[0] == ~common_bits[1]) return;

  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(communicator.size()));
  await(communicator,
        MPI_Iallgather(&hash, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, communicator.handle(), &request),
        request, comparing);
  const std::uint64_t common = majority(hashes);
  const int usual = ranks_where(hashes, [&](std::uint64_t h) { return h == common; }).front();
  const int odd = ranks_where(hashes, [&](std::uint64_t h) { return h != common; }).front();
  const std::string usual_text = broadcast_text(communicator, std::string(text), usual);
  const std::string odd_text = broadcast_text(communicator, std::string(text), odd);
  std::string message =
      fmt::format("{} {}", disagreement(what, hashes),
                  first_difference({.rank = usual, .text = usual_text}, {.rank = odd, .text = odd_text}));
  throw CollectiveError({{.code = ExitCode::usage, .message = message, .rank = communicator.job_rank(odd)}}, message,
                        communicator.rank() == 0);
}

}  // namespace trireme::mpi
