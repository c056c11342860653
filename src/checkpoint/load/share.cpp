// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/load/share.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "checkpoint/manifest_bytes.hpp"
#include "trireme/mpi/broadcast.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/mpi/scatter.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

Manifest head_of(const Manifest& whole) {
  return {.state = whole.state,
          .mesh = whole.mesh,
          .ranks_per_file = whole.ranks_per_file,
          .model = whole.model,
          .versions = whole.versions,
          .parameters = whole.parameters,
          .rules = whole.rules,
          .files = {},
          .digests = {}};
}

std::uint64_t digest_of_replica(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < manifest.mesh.ranks(); ++rank)
    if (manifest.mesh.coordinates(Rank{rank}).replicate == 0) sum += manifest.digests[static_cast<std::size_t>(rank)];
  return sum;
}

/// The slices at `places`, each once, in their datasets and files.
std::vector<SavedFile> files_with(std::vector<Place> places) {
  const auto key = [](const Place& place) { return std::tuple(place.file, place.dataset, place.slice); };
  std::ranges::sort(places, {}, key);
  const auto repeated = std::ranges::unique(places, {}, key);
  places.erase(repeated.begin(), repeated.end());
  std::vector<SavedFile> files;
  const Place* before = nullptr;
  for (const Place& place : places) {
    const bool new_file = before == nullptr || before->file != place.file;
    if (new_file)
      files.push_back({.path = place.file->path,
                       .pipeline_rank = place.file->pipeline_rank,
                       .dp_rank = place.file->dp_rank,
                       .tensor_rank = place.file->tensor_rank,
                       .bytes = place.file->bytes,
                       .rest = place.file->rest,
                       .datasets = {}});
    if (new_file || before->dataset != place.dataset)
      files.back().datasets.push_back({.name = place.dataset->name,
                                       .quantity = place.dataset->quantity,
                                       .elements = place.dataset->elements,
                                       .byte_offset = place.dataset->byte_offset,
                                       .slices = {}});
    files.back().datasets.back().slices.push_back(*place.slice);
    before = &place;
  }
  return files;
}

}  // namespace

Manifest share_head(const mpi::Communicator& world, const Manifest& whole) {
  return decode(mpi::broadcast_text(world, world.rank() == 0 ? encode(head_of(whole)) : std::string()));
}

Request request_for(const Manifest& head, const Shards& shards, Reads reads) {
  std::map<std::string_view, int> index_of;
  for (std::size_t p = 0; p < head.parameters.size(); ++p) index_of[head.parameters[p].name] = static_cast<int>(p);
  Request request{.pieces = {}, .moments = reads == Reads::training_state};
  for (int b = 0; b < shards.model.param_blocks(); ++b) {
    const ParamBlock block{b};
    const auto slices =
        shard::whole_slices(shards.model[block], shards.layout[block], shards.layout.shard_of(block, shards.at.shard));
    for (const shard::StridedSlice& slice : shard::fold(shards.model[block], slices)) {
      const model::Parameter& parameter = shards.model[{block, slice.parameter}];
      const auto found = index_of.find(parameter.name);
      if (found == index_of.end()) continue;
      const bool as_a_whole = reads == Reads::first_values && parameter.transposed_in_files;
      request.pieces.push_back(
          {.parameter = found->second,
           .hyperslab = as_a_whole ? shard::Hyperslab{.length = parameter.full_elements()} : slice.hyperslab});
    }
  }
  return request;
}

Parts::Parts(const Manifest& whole)
    : whole_(whole), places_(whole), digest_of_replica_(checkpoint::digest_of_replica(whole)) {}

Part Parts::of(const Request& request) const {
  Part part{.files = {}, .digest = 0, .digest_of_replica = digest_of_replica_};
  if (request.digest_of >= 0) part.digest = whole_.digests.at(static_cast<std::size_t>(request.digest_of));
  std::vector<Place> places;
  for (const Piece& piece : request.pieces)
    for (const Quantity quantity : all_quantities) {
      if (quantity != Quantity::parameter && !request.moments) continue;
      const std::vector<Place> some = places_.of(quantity, piece.parameter, piece.hyperslab);
      places.insert(places.end(), some.begin(), some.end());
    }
  part.files = files_with(std::move(places));
  return part;
}

Part share_part(const mpi::Communicator& world, const Manifest& whole, const Request& request, const Shards& shards) {
  const mesh::Coordinates& at = shards.at;
  const bool first_replica = at.replicate == 0;
  std::vector<std::string> texts = mpi::gather_texts(world, first_replica ? encode(request) : std::string());
  if (world.rank() == 0) {
    const Parts parts(whole);
    for (std::string& text : texts)
      if (!text.empty()) text = encode(parts.of(decode_request(text)));
  }
  std::string mine = mpi::scatter_texts(world, std::move(texts));
  if (shards.mesh.replicate > 1) {
    const int place = (at.pipeline * shards.mesh.shard + at.shard) * shards.mesh.tensor + at.tensor;
    mine = mpi::broadcast_text(world.split(place, at.replicate), std::move(mine));
  }
  return decode_part(mine);
}

}  // namespace trireme::checkpoint
