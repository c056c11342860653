// SPDX-License-Identifier: Apache-2.0
#include "train/engine/windows.hpp"

#include <algorithm>
#include <span>
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

/// Whether copies of groups are gathered into a node's shared memory: by fewer ranks than blocks are, and no rank may
/// poison it then.
bool gathers_copies(const store::ParameterStore& store) {
  const auto all = store.all_travelling();
  return std::any_of(all.begin(), all.end(), [](const auto& travelling) {
    return travelling.over == store::ParameterStore::Travelling::Over::gather_of_copies;
  });
}

/// Places shards in memory shared by the ranks of a node. Blocks in host memory are uploaded to a slot instead; small
/// blocks are copied: each window is a separate mapping and adds to start-up time. Other ranks read a shard that an
/// update writes: the update follows ClipNorm, whose sum over all ranks comes after their last backward.
void put_shards_in_common(const model::Model& model, store::ParameterStore& store, const executor::Links& links,
                          bool small) {
  for (int b = 0; b < model.param_blocks(); ++b) {
    const ParamBlock block{b};
    const std::int64_t elements = store.layout()[block].gathered();
    if (store.on_host(block) != schedule::OnHost::nothing) continue;
    if (!small && elements * size_of(store.compute()) < static_cast<std::int64_t>(device::own_pages)) continue;
    comm::Collectives* const link = links.find({shard::gathering_group(model[block]), schedule::Lane::gather});
    if (link == nullptr) continue;  // one rank gathers it
    const at::Tensor whole = link->common_memory(elements, store.compute());
    if (whole.defined()) store.lie_in_common(block, whole, link->rank());
  }
}

/// By ring: whether a block is gathered into its slots, and not into memory that ranks have in common.
std::vector<bool> used_rings(std::span<const int> ring_of, const store::ParameterStore& store) {
  std::vector<bool> used(ring_of.size());  // there are no more rings than blocks
  for (std::size_t b = 0; b < ring_of.size(); ++b)
    if (!store.lies_in_common(ParamBlock{static_cast<int>(b)})) used[static_cast<std::size_t>(ring_of[b])] = true;
  return used;
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

void add_windows(const model::Model& model, store::ParameterStore& store, const executor::Links& links,
                 const JobOptions& options, const mpi::Communicator& world) {
  bool shared = true;
  if (options.device.is_cuda() && !options.nccl.windows) return;
  const bool common = !options.poison && !gathers_copies(store);
  if (common && !options.device.is_cuda()) put_shards_in_common(model, store, links, options.small_windows);
  const std::vector<int> ring_of = schedule::rings(model);
  const std::vector<bool> used = used_rings(ring_of, store);
  for (const auto& [over, block, memory, whole] : store.all_travelling()) {
    const comm::WindowUse use = use_of(over, whole);
    if (use == comm::WindowUse::gathered) {
      if (!common && !options.nccl.windows) continue;
      if (!used[static_cast<std::size_t>(ring_of[static_cast<std::size_t>(block.value)])]) continue;
    }
    const mesh::Group of_shards = shard::gathering_group(model[block]);
    // A group of one rank copies, and has no link for its copies.
    if (comm::Collectives* const link = links.find(link_of(over, of_shards)); link != nullptr)
      shared = link->add_window(memory, use) && shared;
  }
  if (!shared && world.rank() == 0)
    log::warning(
        "the ranks of this node cannot share memory, so each keeps a copy of gathered parameters. Sharing needs files "
        "in memory (memfd_create) that ranks open in each other's /proc/PID/fd: run all ranks of a node as one user in "
        "one container, with at least one free file descriptor each");
}

}  // namespace trireme::train
