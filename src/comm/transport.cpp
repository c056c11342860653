// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/transport.hpp"

#include <ATen/core/Tensor.h>

#include <cstring>

#include "comm/sum.hpp"
#include "trireme/base/error.hpp"

namespace trireme::comm {

bool Transport::all_reduce(float*, std::int64_t, DType, mpi::Wait&) { return false; }

void Transport::all_to_all(const std::byte*, std::span<const std::int64_t>, std::byte*, std::span<const std::int64_t>,
                           mpi::Wait&) {
  throw BugError(name() + " has no all-to-all");
}

void Transport::exchange(const std::byte*, std::byte*, std::int64_t, int, mpi::Wait&) {
  throw BugError(name() + " carries no messages between two ranks");
}

void Transport::gather_values(const std::byte* mine, std::byte* all, Parts bytes, mpi::Wait& wait) {
  all_gather(mine, all, bytes, wait);
}

void Transport::copy_alone(const std::byte* from, std::byte* to, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void Transport::sum_alone(const float* from, float* to, std::int64_t elements, bool accumulate) {
  const float* const only[] = {from};
  sum_terms(std::span<const float* const>(only), to, elements, accumulate);
}

bool Transport::add_window(const at::Tensor&, WindowUse, mpi::Wait&) { return true; }

at::Tensor Transport::common_memory(std::int64_t, DType, mpi::Wait&) { return {}; }

bool Transport::ends_later(mpi::FlightLane&, const mpi::Operation&, const mpi::Deadline&, const mpi::FlightRecorder&) {
  return false;
}

}  // namespace trireme::comm
