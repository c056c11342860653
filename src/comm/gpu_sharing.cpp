// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "trireme/comm/device_transports.hpp"
#include "trireme/mpi/communicator.hpp"
#include "trireme/mpi/gather.hpp"

namespace trireme::comm {
namespace {

constexpr int first_with_multi_rank = 23003;  // 2.30.3

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

GpuSharing gpu_sharing(std::span<const GpuUser> users, int nccl) {
  GpuSharing found;
  for (const GpuUser& user : users) {
    std::vector<GpuUser> together;
    std::ranges::copy_if(users, std::back_inserter(together), [&](const GpuUser& u) { return u.bus == user.bus; });
    if (together.size() == 1) continue;
    found.shared = true;
    const bool distinct = std::ranges::all_of(together, [&](const GpuUser& u) {
      return !u.host_id.empty() && std::ranges::count(together, u.host_id, &GpuUser::host_id) == 1;
    });
    const bool multi_rank = nccl >= first_with_multi_rank && std::ranges::all_of(together, &GpuUser::multi_rank);
    found.accepted = found.accepted && (distinct || multi_rank);
  }
  return found;
}

GpuSharing gpu_sharing(const mpi::Communicator& world, const std::string& bus) {
  const mpi::Communicator node = world.node();
  const bool multi_rank = variable("NCCL_MULTI_RANK_GPU_ENABLE") == "1";
  const std::vector<std::string> buses = mpi::gather_texts(node, bus);
  const std::vector<std::string> ids = mpi::gather_texts(node, (multi_rank ? "1" : "0") + variable("NCCL_HOSTID"));
  std::vector<GpuUser> users;
  for (std::size_t rank = 0; rank < buses.size(); ++rank)
    users.push_back({.bus = buses[rank], .host_id = ids[rank].substr(1), .multi_rank = ids[rank].front() == '1'});
  const GpuSharing here = gpu_sharing(users, users.empty() ? 0 : nccl_version());
  return {.shared = mpi::any_rank(world, here.shared), .accepted = !mpi::any_rank(world, !here.accepted)};
}

}  // namespace trireme::comm
