// SPDX-License-Identifier: Apache-2.0
#include "trireme/mpi/common_moment.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/mpi.hpp"

namespace trireme::mpi {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

constexpr int exchanges = 8;
constexpr int clock_tag = 0;

std::int64_t now() { return nanoseconds(Clock::now().time_since_epoch()).count(); }

/// Sends the time to `other` once per request. On rank 0.
void tell(const Communicator& world, int other) {
  for (int i = 0; i < exchanges; ++i) {
    std::int64_t time = 0;
    check(MPI_Recv(&time, 1, MPI_INT64_T, other, clock_tag, world.handle(), MPI_STATUS_IGNORE), "compare clocks");
    time = now();
    check(MPI_Send(&time, 1, MPI_INT64_T, other, clock_tag, world.handle()), "compare clocks");
  }
}

/// Estimates the offset of this rank's clock from rank 0's.
std::int64_t ask(const Communicator& world) {
  std::int64_t ahead = 0, fastest = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < exchanges; ++i) {
    const std::int64_t begin = now();
    std::int64_t theirs = 0;
    check(MPI_Send(&begin, 1, MPI_INT64_T, 0, clock_tag, world.handle()), "compare clocks");
    check(MPI_Recv(&theirs, 1, MPI_INT64_T, 0, clock_tag, world.handle(), MPI_STATUS_IGNORE), "compare clocks");
    const std::int64_t end = now();
    if (end - begin >= fastest) continue;
    fastest = end - begin;
    ahead = begin + fastest / 2 - theirs;
  }
  return ahead;
}

}  // namespace

Clock::time_point common_moment(const Communicator& world) {
  const Communicator node = world.node();
  const int first = node.rank() == 0 ? 1 : 0;
  std::vector<int> firsts(static_cast<std::size_t>(world.rank() == 0 ? world.size() : 0));
  check(MPI_Gather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, 0, world.handle()), "find the nodes' first ranks");
  std::int64_t ahead = 0;
  if (world.rank() == 0) {
    for (int rank = 1; rank < world.size(); ++rank)
      if (firsts[static_cast<std::size_t>(rank)] != 0) tell(world, rank);
  } else if (first != 0) {
    ahead = ask(world);
  }
  check(MPI_Bcast(&ahead, 1, MPI_INT64_T, 0, node.handle()), "share the clock's offset");
  std::int64_t moment = now();
  check(MPI_Bcast(&moment, 1, MPI_INT64_T, 0, world.handle()), "share a moment");
  return Clock::time_point(nanoseconds(moment + ahead));
}

}  // namespace trireme::mpi
