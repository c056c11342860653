// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/context.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {
namespace {

/// The pieces of an attention without its norms.
void append_pieces(std::vector<Stage>& stages, const Stage& branch, const Decoder& decoder,
                   config::ContextMethod method) {
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
  if (method == config::ContextMethod::gather) return stages.push_back(std::move(attend));
  Stage core = branch, output = attend;
  core.kind = StageKind::core_attention;
  core.parameters.clear();
  core.enter = Join::to_heads;
  core.leave = Join::none;
  core.sum_is_normed = false;
  output.name = "output";
  output.kind = StageKind::output;
  output.enter = Join::to_tokens;
  stages.push_back(std::move(core));
  stages.push_back(std::move(output));
}

/// The context sizes above 1 that divide both numbers of heads, as `2 or 4`; empty if there are none.
std::string sizes_that_work(std::int64_t heads, std::int64_t kv_heads) {
  std::vector<std::int64_t> found;
  const std::int64_t common = std::gcd(heads, kv_heads);
  for (std::int64_t ranks = 2; ranks <= common; ++ranks)
    if (common % ranks == 0) found.push_back(ranks);
  return fmt::format("{}", fmt::join(found, " or "));
}

/// Throws ConfigError where the ranks of the context axis cannot share the heads of a tensor rank.
void require_divided_heads(const Model& model, const ContextPart& part) {
  const Sizes& held = model.held;
  if (held.heads % part.ranks == 0 && held.kv_heads % part.ranks == 0) return;
  const std::string works = sizes_that_work(held.heads, held.kv_heads);
  throw ConfigError(
      fmt::format("context.method = \"heads\": mesh.context = {} does not divide the {} heads and {} kv_heads{}; set {}"
                  "context.method = \"gather\"",
                  part.ranks, held.heads, held.kv_heads,
                  model.part.ranks > 1 ? fmt::format(" that mesh.tensor = {} leaves each rank", model.part.ranks) : "",
                  works.empty() ? "" : fmt::format("mesh.context = {}, or ", works)));
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
  if (part.method == config::ContextMethod::heads) require_divided_heads(model, part);
  for (ComputeBlock& block : model.compute_blocks) {
    std::vector<Stage> stages;
    for (const Stage& stage : block.stages) {
      if (stage.kind == StageKind::attention_branch) {
        append_pieces(stages, stage, decoder, part.method);
      } else if (stage.kind == StageKind::attention) {  // one tensor rank: no sums
        for (Stage& piece : pieces_of(stage, decoder)) {
          piece.enter = piece.leave = Join::none;
          if (piece.kind == StageKind::attention_branch)
            append_pieces(stages, piece, decoder, part.method);
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

std::int64_t exchanged_width(const Model& model, Block block, trireme::Stage stage) {
  const model::Stage& of = model[block].stages[static_cast<std::size_t>(stage.value)];
  const bool output = of.enter == Join::to_tokens;
  return (model.held.heads + (output ? 0 : 2 * model.held.kv_heads)) * model.held.head_dim;
}

}  // namespace trireme::model
