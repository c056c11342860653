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

/// Stages that read the keys of whole sequences: after a gather of them, or in two stages after exchanges of heads.
void append_attend(std::vector<Stage>& stages, Stage attend, config::ContextMethod method) {
  if (method == config::ContextMethod::gather) {
    attend.enter = Exchange::gather_keys;
    return stages.push_back(std::move(attend));
  }
  Stage core = attend, output = std::move(attend);
  core.kind = StageKind::core_attention;
  core.parameters.clear();
  core.enter = Exchange::to_heads;
  core.leave = std::nullopt;
  core.sum_is_normed = false;
  output.name = "output";
  output.kind = StageKind::output;
  output.enter = Exchange::to_tokens;
  stages.push_back(std::move(core));
  stages.push_back(std::move(output));
}

/// The stages of one that the tensor plan has left, where sequences are divided.
void append_divided(std::vector<Stage>& stages, const Stage& stage, const Decoder& decoder,
                    config::ContextMethod method) {
  if (stage.kind == StageKind::attend) return append_attend(stages, stage, method);
  if (stage.kind == StageKind::attention_branch) {
    for (const Stage& piece : pieces_of_attention(stage, decoder)) append_divided(stages, piece, decoder, method);
  } else if (stage.kind == StageKind::attention) {  // one tensor rank: no sums
    for (Stage& piece : pieces_of(stage, decoder)) {
      piece.enter = piece.leave = std::nullopt;
      append_divided(stages, piece, decoder, method);
    }
  } else {
    stages.push_back(stage);
  }
}

/// The context sizes above 1 that divide both numbers of heads, as `2 or 4`; empty if there are none.
std::string sizes_that_work(std::int64_t heads, std::int64_t kv_heads) {
  std::vector<std::int64_t> found;
  const std::int64_t common = std::gcd(heads, kv_heads);
  for (std::int64_t ranks = 2; ranks <= common; ++ranks)
    if (common % ranks == 0) found.push_back(ranks);
  return fmt::format("{}", fmt::join(found, " or "));
}

/// Throws ConfigError if the ranks of the context axis cannot share the heads of a tensor rank.
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
  if (decoder.latent && part.method == config::ContextMethod::heads)
    throw ConfigError(
        fmt::format("context.method = \"heads\": ranks that divide sequences of latent attention (model.architecture = "
                    "\"{}\") exchange the latents of all heads; set context.method = \"gather\"",
                    model.architecture));
  if (part.method == config::ContextMethod::heads) require_divided_heads(model, part);
  for (ComputeBlock& block : model.compute_blocks) {
    std::vector<Stage> stages;
    for (const Stage& stage : block.stages) append_divided(stages, stage, decoder, part.method);
    block.stages = std::move(stages);
  }
  return model;
}

std::int64_t gathered_width(const Sizes& held) {
  if (const auto& latent = held.decoder.latent) return latent->kv_rank + latent->rope;
  return 2 * held.kv_heads * held.head_dim;
}

std::int64_t exchanged_width(const Model& model, Block block, trireme::Stage stage) {
  const model::Stage& of = model[block].stages[static_cast<std::size_t>(stage.value)];
  const bool output = of.enter == Exchange::to_tokens;
  return (model.held.heads + (output ? 0 : 2 * model.held.kv_heads)) * model.held.head_dim;
}

}  // namespace trireme::model
