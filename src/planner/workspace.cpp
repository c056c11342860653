// SPDX-License-Identifier: Apache-2.0
#include "planner/workspace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/model/logits.hpp"
#include "trireme/model/product_workspace.hpp"
#include "trireme/model/stage_work.hpp"

namespace trireme::planner {
namespace {

using model::does, model::Work;

/// Workspace of the head's backward: a chunk's logits, with a softcap their derivatives, the normed input, its gradient
/// and a chunk of that.
Bytes head_workspace(const model::Model& model, const ReplayOptions& replay_options) {
  const std::int64_t vocab = (model.sizes.vocab + model.part.ranks - 1) / model.part.ranks;
  const std::int64_t wanted =
      replay_options.loss_chunk_tokens > 0 ? replay_options.loss_chunk_tokens : model::gpu_logits_tokens(vocab);
  const std::int64_t chunk = std::min(wanted, replay_options.tokens);
  const int logits = model.sizes.decoder.logit_softcap > 0 ? 2 : 1;
  return Bytes{(logits * chunk * vocab + (2 * replay_options.tokens + chunk) * model.sizes.hidden) *
               size_of(replay_options.compute)};
}

/// Workspace of a layer of experts, `rows` of whose tokens this rank's experts compute. In forward the inputs, gate|up,
/// down's input (twice if it is saved) and the outputs; in backward down's input and its gradient, each before and
/// after weighting, the gradient of gate|up, the inputs and their gradient. An exchange holds rows before it, after it
/// and sorted. In addition a few times the tokens.
Bytes experts_workspace(const model::Model& model, const ReplayOptions& replay_options, std::int64_t rows,
                        bool exchanges) {
  const model::Experts& experts = *model.sizes.decoder.experts;
  const std::int64_t hidden = model.sizes.hidden, tokens = replay_options.stream_tokens(model),
                     width = size_of(replay_options.compute);
  const std::int64_t of_rows = rows * (2 * hidden + 5 * experts.size);
  const std::int64_t moved = exchanges ? (2 * rows + tokens * experts.per_token) * hidden : 0;
  const std::int64_t of_tokens = tokens * (8 * hidden + 6 * experts.shared_size);
  const std::int64_t routing = tokens * (4 * hidden + 16 * experts.count + 32 * experts.per_token);  // fp32, indices
  return Bytes{(std::max(of_rows, moved) + of_tokens) * width + routing};
}

/// The most rows that a microbatch brings to a block's experts on this rank.
std::int64_t most_rows(const model::Model& model, Block block, const ReplayOptions& replay_options) {
  std::int64_t most = 0;
  for (const auto& [key, rows] : replay_options.recorded_rows)
    if (key.first == block) most = std::max(most, rows.received);
  return most > 0 ? most : replay_options.rows_of(model, block, Microbatch{0}).received;
}

}  // namespace

Workspace largest_workspace(const model::Model& model, const ReplayOptions& replay_options) {
  Workspace most;
  const auto add = [&](const Workspace& one) {
    if (one.bytes > most.bytes) most = one;
  };
  for (int b = 0; b < model.blocks(); ++b)
    for (const model::Stage& stage : model[Block{b}].stages) {
      if (does(stage, Work::logits)) add({head_workspace(model, replay_options), "logits", "backward head"});
      if (!does(stage, Work::experts)) continue;
      const bool exchanges = model::receives_rows(stage);
      const std::int64_t rows = exchanges
                                    ? most_rows(model, Block{b}, replay_options)
                                    : replay_options.stream_tokens(model) * model.sizes.decoder.experts->per_token;
      add({experts_workspace(model, replay_options, rows, exchanges), "rows of experts",
           fmt::format("backward {}", model[Block{b}].name)});
    }
  return most;
}

Bytes product_workspace(const model::Model& model, const ReplayOptions& replay_options) {
  const bool bf16 = replay_options.compute == DType::bf16;
  const std::int64_t head_dim = std::max(model.sizes.head_dim, model.sizes.value_dim());
  const bool fused = model.sizes.decoder.score_softcap == 0 && head_dim % 8 == 0 && head_dim <= 256;
  const bool by_libtorch = !bf16 || !fused || model.part.fp8.recipe != Fp8::none;
  return {(static_cast<int>(bf16) + static_cast<int>(by_libtorch)) * model::product_workspace.value};
}

}  // namespace trireme::planner
