// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>

#include "checkpoint/load/share.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/config/model_texts.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

/// Sum of the digests of what the mesh's first replica held.
std::uint64_t saved_digest(const Manifest& manifest) {
  std::uint64_t sum = 0;
  for (int rank = 0; rank < manifest.mesh.ranks(); ++rank)
    if (manifest.mesh.coordinates(Rank{rank}).replicate == 0) sum += manifest.digests[static_cast<std::size_t>(rank)];
  return sum;
}

/// Runs `work`; when it failed on any rank, all throw alike: Damaged when bytes are missing or not what was written,
/// ReadError when any rank could not read. Collective.
template <class Work>
void together(const mpi::Communicator& world, Work&& work) {
  std::string failure;
  bool unreadable = false;
  try {
    work();
  } catch (const CheckpointError& error) {
    failure = error.what();
  } catch (const std::bad_alloc&) {
    failure = "no memory to read the checkpoint (ENOMEM): nothing was changed; give the job more memory";
    unreadable = true;
  } catch (const std::exception& error) {
    failure = error.what();
    unreadable = true;
  }
  const std::string said = mpi::agree_on_failure(world, failure);
  if (said.empty()) return;
  if (mpi::any_rank(world, unreadable)) throw io::ReadError(said);
  throw Damaged(said);
}

/// What a rank holds of every parameter, by its index in the manifest.
class Pieces {
 public:
  Pieces(const Manifest& manifest, const Shards& shards) : of_(manifest.parameters.size()) {
    std::map<std::string_view, std::size_t> index_of;
    for (std::size_t p = 0; p < of_.size(); ++p) index_of[manifest.parameters[p].name] = p;
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const auto pieces = shard::whole_slices(shards.model[block], shards.layout[block],
                                              shards.layout.shard_of(block, shards.at.shard));
      for (const shard::StridedSlice& slice : shard::fold(shards.model[block], pieces))
        of_[index_of.at(shards.model[{block, slice.parameter}].name)].push_back(slice.hyperslab);
    }
  }
  [[nodiscard]] bool overlap(const SavedSlice& slice) const {
    const auto& held = of_[static_cast<std::size_t>(slice.parameter)];
    return std::ranges::any_of(held,
                               [&](const shard::Hyperslab& piece) { return may_overlap(piece, slice.hyperslab); });
  }

 private:
  std::vector<std::vector<shard::Hyperslab>> of_;
};

void read_shards(Reader& reader, const Shards& shards) {
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const std::span<float> values = shards.values(quantity, block);
      const auto pieces = shard::whole_slices(shards.model[block], shards.layout[block],
                                              shards.layout.shard_of(block, shards.at.shard));
      for (const shard::StridedSlice& slice : shard::fold(shards.model[block], pieces))
        reader.read(
            quantity, shards.model[{block, slice.parameter}].name, slice.hyperslab,
            values.subspan(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(slice.hyperslab.size())));
    }
}

/// A rank that holds other values than were saved says so; on another mesh, with a pipeline, whose ranks may hold other
/// layers, and with experts divided otherwise only the sum of all can be compared.
void check_digest(const mpi::Communicator& world, const std::string& path, const Manifest& manifest,
                  const Shards& shards) {
  const std::uint64_t mine = shard_digest(shards);
  const bool same_shards = manifest.mesh.shard == shards.mesh.shard && manifest.mesh.tensor == shards.mesh.tensor &&
                           manifest.mesh.pipeline == 1 && shards.mesh.pipeline == 1;
  const int first_like_this = shards.at.shard * shards.mesh.tensor + shards.at.tensor;
  const std::uint64_t all = mpi::sum_words(world, mine);
  const bool as_saved = same_shards && mine == manifest.digests[static_cast<std::size_t>(first_like_this)];
  const bool right = as_saved || all == saved_digest(manifest) * static_cast<std::uint64_t>(shards.mesh.replicate);
  const std::string said = mpi::agree_on_failure(
      world, right ? ""
                   : fmt::format("{}: the values restored are not those that were saved, though every checksum "
                                 "fits: the memory of this node, or of the one that saved, is not reliable",
                                 path));
  if (!said.empty()) throw Damaged(said);
}

/// Every parameter's shape by its name.
Metadata shapes(const std::vector<SavedParameter>& parameters) {
  Metadata metadata;
  for (const SavedParameter& parameter : parameters)
    metadata.emplace_back(parameter.name, fmt::format("[{}]", fmt::join(parameter.shape, ", ")));
  return metadata;
}

}  // namespace

void check_model(const std::string& path, const Manifest& manifest, const model::Model& model) {
  std::vector<std::string> lines =
      differences(config::model_texts(model_of(path, manifest.model)), model_metadata(model));
  if (lines.empty()) lines = differences(shapes(manifest.parameters), shapes(saved_parameters(model)));
  if (!lines.empty())
    throw CheckpointError(
        fmt::format("{} was saved from another model: {}. Set [model] as it was, or start over in another "
                    "run.output.",
                    path, join(lines, "; ")));
}

Manifest load(const mpi::Communicator& world, const std::string& path, const Shards& shards) {
  Manifest whole;
  together(world, [&] {
    if (world.rank() == 0) whole = open_checkpoint(path);
  });
  Manifest manifest = share_head(world, whole);
  check_model(path, manifest, shards.whole_model());
  const Pieces pieces(manifest, shards);
  manifest.files =
      share_files(world, whole.files, [&](Quantity, const SavedSlice& slice) { return pieces.overlap(slice); });
  whole = {};
  together(world, [&] {
    (void)fault::point("load.read");
    Reader reader(path, manifest);
    read_shards(reader, shards);
  });
  check_digest(world, path, manifest, shards);
  return manifest;
}

}  // namespace trireme::checkpoint
