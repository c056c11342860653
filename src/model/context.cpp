// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/context.hpp"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {
namespace {

/// Projection and attend of an attention without its norms.
void append_halves(std::vector<Stage>& stages, const Stage& branch, const Decoder& decoder) {
  const auto border =
      branch.parameters.begin() + static_cast<std::ptrdiff_t>(roles_of(StageKind::projection, decoder).size());
  Stage projection = branch, attend = branch;
  projection.name = "projection";
  projection.kind = StageKind::projection;
  projection.parameters.assign(branch.parameters.begin(), border);
  projection.leave = Join::none;
  projection.sum_is_normed = false;
  attend.kind = StageKind::attend;
  attend.parameters.assign(border, branch.parameters.end());
  attend.enter = Join::gather_keys;
  stages.push_back(std::move(projection));
  stages.push_back(std::move(attend));
}

}  // namespace

Model divide_sequences(Model model, const ContextPart& part) {
  invariant(part.ranks >= 1 && part.rank >= 0 && part.rank < part.ranks, "a context rank lies within its axis");
  if (part.ranks == 1) return model;
  const Decoder& decoder = model.sizes.decoder;
  if (!decoder.pre_norm)
    throw ConfigError(fmt::format(
        "mesh.context = {}: model.architecture = \"{}\" does not norm what its branches read, which context "
        "parallelism does not do yet; set mesh.context = 1",
        part.ranks, model.architecture));
  if (decoder.experts)
    throw ConfigError(fmt::format(
        "mesh.context = {}: the routers of model.architecture = \"{}\" see whole sequences, whose loads and "
        "losses are not summed over the context axis yet; set mesh.context = 1",
        part.ranks, model.architecture));
  for (ComputeBlock& block : model.compute_blocks) {
    std::vector<Stage> stages;
    for (const Stage& stage : block.stages) {
      if (stage.kind == StageKind::attention_branch) {
        append_halves(stages, stage, decoder);
      } else if (stage.kind == StageKind::attention) {  // one tensor rank: no sums
        for (Stage& piece : pieces_of(stage, decoder)) {
          piece.enter = piece.leave = Join::none;
          if (piece.kind == StageKind::attention_branch)
            append_halves(stages, piece, decoder);
          else
            stages.push_back(std::move(piece));
        }
      } else {
        stages.push_back(stage);
      }
    }
    block.stages = std::move(stages);
  }
  return model;
}

}  // namespace trireme::model
