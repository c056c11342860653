// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/checksum.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/comm/broadcast.hpp"
#include "trireme/comm/gather.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t most_open_files = 128;

/// Sum of the digests of what the mesh's first replica held.
std::uint64_t saved_digest(const Manifest& manifest) {
  std::uint64_t sum = 0;
  const int ranks = manifest.mesh.shard * manifest.mesh.tensor;
  for (int rank = 0; rank < ranks; ++rank) sum += manifest.digests[static_cast<std::size_t>(rank)];
  return sum;
}

/// What all ranks agree on went wrong while `work` ran.
template <class Work>
std::string failures_of(const comm::Communicator& world, Work&& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  return comm::agree_on_failure(world, failure);
}

void read_shards(Reader& reader, const Shards& shards) {
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const std::span<float> values = shards.values(quantity, block);
      for (const shard::Slice& slice : shard::whole_slices(shards.model[block], shards.layout[block], shards.at.shard))
        reader.read(
            quantity, shards.model[{block, slice.parameter}].name, slice.elements,
            values.subspan(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(slice.elements.size())));
    }
}

/// A rank that holds other values than were saved says so; on another mesh only the sum of all can be compared.
void check_digest(const comm::Communicator& world, const std::string& path, const Manifest& manifest,
                  const Shards& shards) {
  const std::uint64_t mine = shard_digest(shards);
  const bool same_shards = manifest.mesh.shard == shards.mesh.shard && manifest.mesh.tensor == shards.mesh.tensor;
  const int first_like_this = shards.at.shard * shards.mesh.tensor + shards.at.tensor;
  const std::uint64_t all = comm::sum_words(world, mine);
  const bool right = same_shards ? mine == manifest.digests[static_cast<std::size_t>(first_like_this)]
                                 : all == saved_digest(manifest) * static_cast<std::uint64_t>(shards.mesh.replicate);
  const std::string said = comm::agree_on_failure(
      world, right ? ""
                   : fmt::format("{}: the values restored are not those that were saved, though every checksum "
                                 "fits: the memory of this node, or of the one that saved, is not reliable",
                                 path));
  if (!said.empty()) throw Damaged(said);
}

}  // namespace

Reader::Reader(std::string path, Manifest manifest) : path_(std::move(path)), manifest_(std::move(manifest)) {
  for (std::size_t p = 0; p < manifest_.parameters.size(); ++p)
    index_of_[manifest_.parameters[p].name] = static_cast<int>(p);
  places_.resize(all_quantities.size() * manifest_.parameters.size());
  for (const SavedFile& file : manifest_.files)
    for (const SavedDataset& dataset : file.datasets)
      for (const SavedSlice& slice : dataset.slices)
        places_[static_cast<std::size_t>(dataset.quantity) * manifest_.parameters.size() +
                static_cast<std::size_t>(slice.parameter)]
            .push_back({&file, &dataset, &slice});
  for (auto& list : places_)
    std::sort(list.begin(), list.end(),
              [](const Place& a, const Place& b) { return a.slice->elements.begin < b.slice->elements.begin; });
}

const File& Reader::open(const SavedFile& file) {
  const auto found = open_.find(file.path);
  if (found != open_.end()) return found->second;
  if (open_.size() >= most_open_files) open_.clear();
  return open_.emplace(file.path, File::open(path_ + "/" + file.path)).first->second;
}

void Reader::read_slice(const Place& place, shard::Range elements, std::span<float> out) {
  const SavedSlice& slice = *place.slice;
  const File& file = open(*place.file);
  const std::int64_t first = (elements.begin - slice.elements.begin) / chunk_elements;
  const std::int64_t end = (elements.end - slice.elements.begin + chunk_elements - 1) / chunk_elements;
  for (std::int64_t c = first; c < end; ++c) {
    const shard::Range chunk{.begin = slice.elements.begin + c * chunk_elements,
                             .end = std::min(slice.elements.begin + (c + 1) * chunk_elements, slice.elements.end)};
    const shard::Range wanted{.begin = std::max(chunk.begin, elements.begin), .end = std::min(chunk.end, elements.end)};
    const auto target =
        out.subspan(static_cast<std::size_t>(wanted.begin - elements.begin), static_cast<std::size_t>(wanted.size()));
    const bool direct = wanted == chunk;
    if (!direct) chunk_.resize(static_cast<std::size_t>(chunk.size()));
    const auto bytes = std::as_writable_bytes(direct ? target : std::span(chunk_));
    const std::int64_t at = slice.offset + c * chunk_elements;
    file.read_at(place.dataset->byte_offset + 4 * at, bytes);
    if (checksum(bytes) != slice.checksums[static_cast<std::size_t>(c)])
      throw CheckpointError(fmt::format("{}, dataset {}: elements {} to {} are damaged (their checksum does not fit)",
                                        file.path(), place.dataset->name, at, at + chunk.size()));
    if (!direct) std::memcpy(target.data(), chunk_.data() + (wanted.begin - chunk.begin), target.size_bytes());
  }
}

void Reader::read(Quantity quantity, std::string_view parameter, shard::Range elements, std::span<float> out) {
  const auto index = index_of_.find(parameter);
  invariant(index != index_of_.end(), "the parameter is in the checkpoint");
  const std::vector<Place>& places = places_[static_cast<std::size_t>(quantity) * manifest_.parameters.size() +
                                             static_cast<std::size_t>(index->second)];
  const auto first = std::partition_point(
      places.begin(), places.end(), [&](const Place& place) { return place.slice->elements.end <= elements.begin; });
  for (auto it = first; it != places.end() && it->slice->elements.begin < elements.end; ++it) {
    const Place& place = *it;
    const shard::Range common{.begin = std::max(elements.begin, place.slice->elements.begin),
                              .end = std::min(elements.end, place.slice->elements.end)};
    if (common.empty()) continue;
    read_slice(
        place, common,
        out.subspan(static_cast<std::size_t>(common.begin - elements.begin), static_cast<std::size_t>(common.size())));
  }
}

void check_model(const std::string& path, const Manifest& manifest, const model::Model& model) {
  std::vector<std::string> lines = differences(manifest.model, model_facts(model));
  const std::vector<SavedParameter> parameters = saved_parameters(model);
  for (std::size_t p = 0; lines.empty() && p < std::max(parameters.size(), manifest.parameters.size()); ++p)
    if (p >= parameters.size() || p >= manifest.parameters.size() ||
        parameters[p].name != manifest.parameters[p].name || parameters[p].shape != manifest.parameters[p].shape)
      lines.push_back(fmt::format("parameter {} has another name or shape", p));
  if (!lines.empty())
    throw CheckpointError(
        fmt::format("{} is of another model: {}. Set [model] as it was, or begin anew in another "
                    "run.output.",
                    path, join(lines, "; ")));
}

Manifest load(const comm::Communicator& world, const std::string& path, const Shards& shards) {
  std::string text;
  std::string said = failures_of(world, [&] {
    if (world.rank() != 0) return;
    (void)open_checkpoint(path);
    text = open_manifest_text(path);
  });
  if (!said.empty()) throw Damaged(said);
  text = comm::broadcast_text(world, std::move(text));
  Manifest manifest;
  said = failures_of(world, [&] { manifest = parse_manifest(index_path(path), text); });
  if (!said.empty()) throw Damaged(said);
  check_model(path, manifest, shards.model);
  said = failures_of(world, [&] {
    (void)fault::point("load.read");
    Reader reader(path, manifest);
    read_shards(reader, shards);
  });
  if (!said.empty()) throw Damaged(said);
  check_digest(world, path, manifest, shards);
  return manifest;
}

}  // namespace trireme::checkpoint
