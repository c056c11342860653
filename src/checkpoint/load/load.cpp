// SPDX-License-Identifier: Apache-2.0
#include "trireme/checkpoint/load/load.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/load/share.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/fault.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/text.hpp"
#include "trireme/checkpoint/directory.hpp"
#include "trireme/checkpoint/model_metadata.hpp"
#include "trireme/config/model_texts.hpp"
#include "trireme/mpi/gather.hpp"
#include "trireme/shard/copies.hpp"

namespace trireme::checkpoint {
namespace {

/// restarts: moments are set to 0.
void read_shards(Reader& reader, const Shards& shards, bool restarts) {
  for (const Quantity quantity : all_quantities)
    for (int b = 0; b < shards.model.param_blocks(); ++b) {
      const ParamBlock block{b};
      const std::span<float> values = shards.values(quantity, block);
      if (restarts && quantity != Quantity::parameter) {
        std::ranges::fill(values, 0.0F);
        continue;
      }
      const int shard = shards.layout.shard_of(block, shards.at.shard);
      const optimizer::StateLayout places = shards.places(quantity, block, shard);
      const auto pieces = shard::whole_slices(shards.model[block], shards.layout[block], shard);
      for (const shard::StridedSlice& slice : shard::fold(shards.model[block], pieces))
        if (shards.has(quantity, block, slice.parameter))
          reader.read(quantity, shards.model[{block, slice.parameter}].name, slice.hyperslab,
                      values.subspan(static_cast<std::size_t>(places.place(slice.parameter, slice.offset)),
                                     static_cast<std::size_t>(slice.hyperslab.size())));
    }
}

/// The first parameter whose rule in the run differs from that in the checkpoint; "": there is none. With the number
/// of those.
std::pair<std::string, int> other_rules(const Manifest& manifest, const Shards& shards) {
  std::map<std::string_view, optimizer::UpdateRule> saved;
  for (std::size_t p = 0; p < manifest.rules.size(); ++p) saved[manifest.parameters[p].name] = manifest.rules[p];
  std::pair<std::string, int> found{"", 0};
  for (const model::ParameterBlock& block : shards.whole_model().parameter_blocks)
    for (const model::Parameter& parameter : block.parameters) {
      const auto before = saved.find(parameter.name);
      const auto rule = before == saved.end() ? optimizer::UpdateRule::adamw : before->second;
      if (rule == shards.optimizer.rule_of(parameter)) continue;
      if (found.second++ == 0) found.first = parameter.name;
    }
  return found;
}

/// The rank of the mesh that saved which held the same as this one; -1: none. With a pipeline, whose ranks may hold
/// other layers, and with experts divided otherwise none is known.
std::int64_t rank_like_this(const Manifest& head, const Shards& shards) {
  const bool same_shards = head.mesh.shard == shards.mesh.shard && head.mesh.tensor == shards.mesh.tensor &&
                           head.mesh.pipeline == 1 && shards.mesh.pipeline == 1;
  return same_shards ? shards.at.shard * shards.mesh.tensor + shards.at.tensor : -1;
}

/// Throws on every rank when a rank's digest differs from the saved one. Where no saved rank held the same elements,
/// the sum over all ranks is compared instead.
void check_digest(const mpi::Communicator& world, const std::string& path, const Request& request, const Part& part,
                  const Shards& shards) {
  const std::uint64_t mine = shard_digest(shards);
  const std::uint64_t all = mpi::sum_words(world, mine);
  const bool as_saved = request.digest_of >= 0 && mine == part.digest;
  const bool right = as_saved || all == part.digest_of_replica * static_cast<std::uint64_t>(shards.mesh.replicate);
  read_collectively(world, "compare digests", [&] {
    if (!right)
      throw CheckpointError(
          fmt::format("{}: the values restored are not those that were saved, though every checksum fits: the memory "
                      "of this node, or of the saving node, is not reliable",
                      path));
  });
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
  read_collectively(world, "open the checkpoint", [&] {
    if (world.rank() == 0) whole = open_checkpoint(path);
  });
  Manifest manifest = share_head(world, whole);
  check_model(path, manifest, shards.whole_model());
  const auto [parameter, others] = other_rules(manifest, shards);
  const bool restarts = others > 0;
  if (restarts) {
    if (world.rank() == 0 && manifest.state.updates > 0)
      log::warning(
          fmt::format("{}: {} parameter{} updated by another rule than now ({}): all moments and the number of updates "
                      "restart at 0; warm the learning rate up again, or set [optimizer] as it was",
                      path, others, others == 1 ? " was" : "s were", parameter));
    manifest.state.updates = 0;
  }
  Request request = request_for(manifest, shards, restarts ? Reads::parameters : Reads::training_state);
  request.digest_of = rank_like_this(manifest, shards);
  Part part = share_part(world, whole, request, shards);
  manifest.files = std::move(part.files);
  whole = {};
  read_collectively(world, "read the checkpoint", [&] {
    (void)fault::point("load.read");
    Reader reader(path, manifest);
    read_shards(reader, shards, restarts);
  });
  if (!restarts) check_digest(world, path, request, part, shards);  // it is that of parameters and moments together
  return manifest;
}

}  // namespace trireme::checkpoint
