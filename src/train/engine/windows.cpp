// SPDX-License-Identifier: Apache-2.0
#include "train/engine/windows.hpp"

#include <algorithm>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/log.hpp"
#include "trireme/comm/device_transports.hpp"
#include "trireme/comm/transport.hpp"
#include "trireme/device/buffer.hpp"
#include "trireme/train/engine/job.hpp"

namespace trireme::train {
namespace {

executor::Link link_of(store::ParameterStore::Travelling::Over over, mesh::Group of_shards) {
  using enum store::ParameterStore::Travelling::Over;
  switch (over) {
    case gather: return {of_shards, schedule::Lane::gather};
    case gather_of_copies: return {mesh::Group::shard_group, schedule::Lane::gather};
    case reduce: return {of_shards, schedule::Lane::reduce};
  }
  throw BugError("memory travels over no collectives of the schedule's");
}

comm::WindowUse use_of(store::ParameterStore::Travelling::Over over, bool whole) {
  if (!whole) return comm::WindowUse::part;
  return over == store::ParameterStore::Travelling::Over::reduce ? comm::WindowUse::terms : comm::WindowUse::gathered;
}

}  // namespace

store::Allocate memory_of_windows(const JobOptions& options) {
  if (options.nccl.windows)
    return [device = options.device](device::Category category, std::int64_t elements, DType type) {
      return comm::window_memory(category, elements, type, device);
    };
  if (!options.small_windows || options.device.is_cuda()) return {};
  return [](device::Category category, std::int64_t elements, DType type) {
    constexpr auto least = static_cast<std::int64_t>(device::own_pages);
    return device::buffer(category, std::max(elements, least / size_of(type)), type).narrow(0, 0, elements);
  };
}

void add_windows(const model::Model& model, const store::ParameterStore& store, const executor::Links& links,
                 const JobOptions& options, const mpi::Communicator& world) {
  bool shared = true;
  if (options.device.is_cuda() && !options.nccl.windows) return;
  const std::vector<store::ParameterStore::Travelling> all = store.all_travelling();
  // On a node one memory holds what all its ranks gather: none of them may poison it, and copies of groups are gathered
  // into it by fewer ranks than blocks.
  const bool common = !options.poison && std::none_of(all.begin(), all.end(), [](const auto& travelling) {
    return travelling.over == store::ParameterStore::Travelling::Over::gather_of_copies;
  });
  for (const auto& [over, block, memory, whole] : all) {
    const comm::WindowUse use = use_of(over, whole);
    if (use == comm::WindowUse::gathered && !common && !options.nccl.windows) continue;
    const mesh::Group of_shards = shard::gathering_group(model[block]);
    // A group of one rank copies, and has no link for its copies.
    if (comm::Collectives* const link = links.find(link_of(over, of_shards)); link != nullptr)
      shared = link->add_window(memory, use) && shared;
  }
  if (!shared && world.rank() == 0)
    log::warning(
        "the ranks of this node cannot share memory, so each keeps a copy of what it gathers: that takes files in "
        "memory "
        "(memfd_create) that ranks open in each other's /proc/PID/fd; run all ranks of a node as one user in one "
        "container, with at least one free file descriptor each");
}

}  // namespace trireme::train
