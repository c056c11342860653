// SPDX-License-Identifier: Apache-2.0
#include "train/engine/windows.hpp"

#include "trireme/base/error.hpp"

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

}  // namespace

void add_windows(const model::Model& model, const store::ParameterStore& store, const executor::Links& links) {
  for (const auto& [over, block, memory] : store.all_travelling()) {
    const mesh::Group of_shards = shard::gathering_group(model[block]);
    // A group of one rank copies, and has no link for its copies.
    if (comm::Collectives* const link = links.find(link_of(over, of_shards)); link != nullptr) link->add_window(memory);
  }
}

}  // namespace trireme::train
