// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/save/shard_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

/// The pieces of parameters in `part` of shard `rank`, with offsets from the beginning of the part.
std::vector<shard::StridedSlice> slices_of_part(const Shards& shards, ParamBlock block, int rank, shard::Range part) {
  std::vector<shard::Slice> clipped;
  for (const shard::Slice& slice :
       shard::whole_slices(shards.model[block], shards.layout[block], rank, shard::Copies::first)) {
    const std::int64_t begin = std::max(slice.offset, part.begin);
    const std::int64_t end = std::min(slice.offset + slice.elements.size(), part.end);
    if (begin >= end) continue;
    const std::int64_t first = slice.elements.begin + begin - slice.offset;
    clipped.push_back({.parameter = slice.parameter,
                       .elements = {.begin = first, .end = first + end - begin},
                       .offset = begin - part.begin});
  }
  return shard::fold(shards.model[block], clipped);
}

/// Leaves out the slices of `part` without the state, and gives the others their places in a packed one. Returns the
/// range of values that they are in, from whose beginning their offsets count.
shard::Range with_places(const Shards& shards, Quantity quantity, ParamBlock block, int shard, shard::Range part,
                         std::vector<shard::StridedSlice>& slices) {
  const optimizer::StateLayout places = shards.places(quantity, block, shard);
  if (!places.packed) return part;
  std::erase_if(slices,
                [&](const shard::StridedSlice& slice) { return !shards.has(quantity, block, slice.parameter); });
  if (slices.empty()) return {};
  for (shard::StridedSlice& slice : slices) slice.offset = places.place(slice.parameter, part.begin + slice.offset);
  const shard::Range values{.begin = slices.front().offset,
                            .end = slices.back().offset + slices.back().hyperslab.size()};
  for (shard::StridedSlice& slice : slices) slice.offset -= values.begin;
  return values;
}

PlannedDataset plan_dataset(const Shards& shards, const Writers& writers, Quantity quantity, ParamBlock block,
                            int first_parameter) {
  PlannedDataset planned{.dataset = {.name = fmt::format("{}/{}", to_text(quantity), shards.model[block].name),
                                     .quantity = quantity,
                                     .slices = {}},
                         .block = block,
                         .parts = {}};
  SavedDataset& dataset = planned.dataset;
  for (int rank = writers.first; rank < writers.first + writers.count; ++rank) {
    const int first = shards.mesh.rank_of({.pipeline = shards.at.pipeline}).value;
    const mesh::Coordinates at = shards.mesh.coordinates(Rank{first + rank * shards.mesh.tensor + shards.at.tensor});
    shard::Range part = part_of_shard(shards.layout[block].shard_elements(), at.replicate, shards.mesh.replicate);
    const int shard = shards.layout.shard_of(block, at.shard);
    auto slices = slices_of_part(shards, block, shard, part);
    part = with_places(shards, quantity, block, shard, part, slices);
    if (slices.empty()) continue;  // padding only, or no parameter has the state
    planned.parts.push_back({.dp_rank = rank,
                             .begin = part.begin,
                             .offset = dataset.elements,
                             .first_slice = dataset.slices.size(),
                             .end_slice = dataset.slices.size() + slices.size()});
    for (const shard::StridedSlice& slice : slices)
      dataset.slices.push_back({.parameter = first_parameter + slice.parameter,
                                .hyperslab = slice.hyperslab,
                                .offset = dataset.elements + slice.offset,
                                .checksums = {}});
    dataset.elements += part.size();
  }
  return planned;
}

/// The index of every block's first parameter in `saved_parameters`, by the block's name.
std::map<std::string_view, int> first_parameters_of_blocks(const model::Model& model) {
  std::map<std::string_view, int> first;
  int parameters = 0;
  for (const model::ParameterBlock& block : model.parameter_blocks) {
    first[block.name] = parameters;
    parameters += static_cast<int>(block.parameters.size());
  }
  return first;
}

}  // namespace

shard::Range part_of_shard(std::int64_t elements, int replica, int replicas) {
  const std::int64_t units = elements / shard::alignment;
  return {.begin = units * replica / replicas * shard::alignment,
          .end = units * (replica + 1) / replicas * shard::alignment};
}

Writers writers_of(const mesh::Mesh& mesh, int dp_rank, std::int64_t ranks_per_file) {
  const std::int64_t first = dp_rank / ranks_per_file * ranks_per_file;
  return {.first = static_cast<int>(first),
          .count = static_cast<int>(std::min(ranks_per_file, mesh.dp_size() - first))};
}

std::vector<PlannedDataset> plan_file(const Shards& shards, const Writers& writers) {
  std::vector<PlannedDataset> datasets;
  const std::map<std::string_view, int> first_parameter = first_parameters_of_blocks(shards.whole_model());
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      if (shards.is_copy(block)) continue;
      PlannedDataset planned =
          plan_dataset(shards, writers, quantity, block, first_parameter.at(shards.model[block].name));
      if (!planned.parts.empty()) datasets.push_back(std::move(planned));
    }
  return datasets;
}

}  // namespace trireme::checkpoint
