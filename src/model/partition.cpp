// SPDX-License-Identifier: Apache-2.0
// A tensor plan applied to a model.
#include "trireme/model/partition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {
namespace {

/// Reasons why `ranks` cannot share a model of these sizes.
std::vector<std::string> obstacles(const Sizes& s, std::int64_t ranks) {
  std::vector<std::string> found;
  const auto divides = [&](const char* key, std::int64_t size) {
    if (size % ranks != 0) found.push_back(fmt::format("it does not divide model.{} = {}", key, size));
  };
  divides("heads", s.heads);
  if (s.kv_heads % ranks != 0 && ranks % s.kv_heads != 0)
    found.push_back(fmt::format("model.kv_heads = {} can neither be divided by it nor divides it", s.kv_heads));
  if (!s.decoder.experts || s.decoder.experts->dense_layers > 0) divides("intermediate_size", s.intermediate);
  const std::int64_t rows = (s.vocab + ranks - 1) / ranks;
  if (rows * (ranks - 1) >= s.vocab)
    found.push_back(fmt::format("the vocabulary of model.vocab_size = {} leaves a rank without a token", s.vocab));
  return found;
}

std::string nearest_that_work(const Sizes& sizes, std::int64_t wanted) {
  std::vector<std::int64_t> nearest;
  for (std::int64_t below = wanted - 1; below >= 1 && nearest.empty(); --below)
    if (obstacles(sizes, below).empty()) nearest.push_back(below);
  for (std::int64_t above = wanted + 1; above <= sizes.heads; ++above)
    if (obstacles(sizes, above).empty()) {
      nearest.push_back(above);
      break;
    }
  return fmt::format("{}", fmt::join(nearest, " or "));
}

void partition_parameter(Parameter& parameter, const ParameterRule& rule, const Sizes& sizes, const TensorPart& part) {
  Partition partition{.split = rule.split, .sections = rule.sections};
  const int copies = rule.unit == Unit::kv_heads ? static_cast<int>(kv_copies(sizes, part.ranks)) : 1;
  if (rule.split == Split::replicated) {
    partition.copies = part.ranks;
    partition.copy = part.rank;
    partition.sum_gradient = rule.sum_of_heads || (rule.on_residual_stream && part.sequence_parallel);
    parameter.partition = partition;
    return;
  }
  partition.copies = copies;
  partition.copy = part.rank % copies;
  partition.sum_gradient = copies > 1;
  partition.parts = part.ranks / copies;
  partition.part = part.rank / copies;
  std::int64_t& size = parameter.shape[rule.split == Split::row ? 1 : 0];
  partition.full = size;
  if (rule.split == Split::vocabulary)
    size = (size + partition.parts - 1) / partition.parts;
  else
    size /= partition.parts;
  invariant(rule.split == Split::vocabulary || size * partition.parts == partition.full,
            fmt::format("{} does not divide", parameter.name));
  parameter.partition = partition;
}

/// Without sequence parallelism the residual stream is whole everywhere: nothing is gathered, all is summed.
std::optional<Exchange> without_sequence_parallelism(std::optional<Exchange> exchange) {
  const bool divides = exchange == Exchange::gather_sequence || exchange == Exchange::scatter_sequence;
  return divides ? Exchange::all_reduce_activation : exchange;
}

/// The parameters of a whole stage that a part of it has. In every decoder the final norm precedes the head.
std::vector<ParamRef> parameters_of(const Stage& whole, Has has, const Decoder& decoder) {
  const bool residual = whole.kind == StageKind::attention || whole.kind == StageKind::mlp;
  const auto norm = static_cast<std::ptrdiff_t>(norm_parameters(decoder));
  const std::ptrdiff_t pre = whole.kind == StageKind::head || (residual && decoder.pre_norm) ? norm : 0;
  const std::ptrdiff_t post = residual && decoder.post_norm ? norm : 0;
  const auto begin = whole.parameters.begin(), end = whole.parameters.end();
  switch (has) {
    case Has::pre: return {begin, begin + pre};
    case Has::branch: return {begin + pre, end - post};
    case Has::post: return {end - post, end};
  }
  throw BugError("a piece of a stage has some of its parameters");
}

/// The stages that run a part on one of several ranks. A norm over all heads needs the other ranks' sums.
std::vector<Stage> stages_of_piece(Stage piece, const Decoder& decoder, bool sequence_parallel) {
  if (!sequence_parallel) {
    piece.enter = without_sequence_parallelism(piece.enter);
    piece.leave = without_sequence_parallelism(piece.leave);
  }
  if (piece.kind != StageKind::attention_branch || decoder.qk_norm != QkNorm::width) return {std::move(piece)};
  std::vector<Stage> stages = pieces_of_attention(piece, decoder);
  for (Stage& stage : stages)
    if (stage.kind == StageKind::qk_norm) stage.enter = Exchange::all_reduce_statistics;
  return stages;
}

}  // namespace

std::int64_t kv_copies(const Sizes& sizes, std::int64_t ranks) {
  return ranks > sizes.kv_heads && ranks % sizes.kv_heads == 0 ? ranks / sizes.kv_heads : 1;
}

std::vector<Stage> pieces_of_attention(const Stage& branch, const Decoder& decoder) {
  auto next = branch.parameters.begin();
  std::vector<Stage> stages;
  for (const StageKind kind : {StageKind::projection, StageKind::qk_norm, StageKind::attend}) {
    if (kind == StageKind::qk_norm && decoder.qk_norm != QkNorm::width) continue;
    Stage piece = branch;
    piece.kind = kind;
    const auto end = next + static_cast<std::ptrdiff_t>(roles_of(kind, decoder).size());
    piece.parameters.assign(next, end);
    next = end;
    if (kind != StageKind::projection) piece.enter = std::nullopt;
    if (kind != StageKind::attend) {
      piece.name = kind == StageKind::projection ? "projection" : "qk_norm";
      piece.leave = std::nullopt;
      piece.sum_is_normed = false;
    }
    stages.push_back(std::move(piece));
  }
  return stages;
}

std::vector<Stage> pieces_of(const Stage& whole, const Decoder& decoder) {
  const std::vector<StageRule>& rules = stage_rules();
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const StageRule& r) { return r.whole == whole.kind; });
  invariant(rule != rules.end(), fmt::format("the tensor plan has no rule for stage {}", whole.name));
  if (rule->pieces.empty()) return {whole};
  std::vector<Stage> stages;
  for (const Piece& piece : rule->pieces) {
    if (piece.has == Has::post && !decoder.post_norm) continue;
    Stage stage = whole;
    if (!piece.name.empty()) stage.name = piece.name;
    stage.kind = piece.kind;
    if (piece.has == Has::pre && whole.kind != StageKind::head && !decoder.pre_norm) {
      stage.kind = StageKind::input;
      stage.name = whole.name + "_input";
    }
    stage.parameters = parameters_of(whole, piece.has, decoder);
    stage.enter = piece.enter;
    stage.leave = piece.leave;
    stage.sum_is_normed = decoder.post_norm && is_branch(piece.kind);
    stages.push_back(std::move(stage));
  }
  return stages;
}

Model partition(Model model, const TensorPart& part) {
  invariant(part.ranks >= 1 && part.rank >= 0 && part.rank < part.ranks, "a tensor rank lies within its axis");
  model.part = part;
  if (part.ranks == 1) return model;
  const Decoder& decoder = model.sizes.decoder;
  const std::vector<std::string> wrong = obstacles(model.sizes, part.ranks);
  if (!wrong.empty())
    throw ConfigError(fmt::format("mesh.tensor = {}: {}; the nearest that works with this model: {}", part.ranks,
                                  fmt::join(wrong, "; "), nearest_that_work(model.sizes, part.ranks)));
  model.held.heads /= part.ranks;
  model.held.kv_heads = std::max<std::int64_t>(1, model.held.kv_heads / part.ranks);
  model.held.intermediate /= part.ranks;
  model.held.vocab = vocabulary_part(model.sizes.vocab, part).count;
  for (ParameterBlock& block : model.parameter_blocks)
    for (Parameter& parameter : block.parameters)
      if (!is_expert(parameter.role))
        partition_parameter(parameter, rule_of(parameter.role, decoder), model.sizes, part);
  for (ComputeBlock& block : model.compute_blocks) {
    std::vector<Stage> stages;
    for (const Stage& whole : block.stages)
      for (const Stage& piece : pieces_of(whole, decoder))
        for (Stage& stage : stages_of_piece(piece, decoder, part.sequence_parallel)) stages.push_back(std::move(stage));
    block.stages = std::move(stages);
  }
  return model;
}

std::vector<Extent> extents(const Parameter& parameter, std::int64_t begin, std::int64_t end) {
  if (begin >= end) return {};
  if (!parameter.partition || parameter.partition->split == Split::replicated)
    return {{.held = begin, .whole = begin, .count = end - begin}};
  const Partition& partition = *parameter.partition;
  std::vector<Extent> found;
  const auto add = [&](std::int64_t held, std::int64_t whole, std::int64_t count) {
    const std::int64_t first = std::max(held, begin);
    const std::int64_t last = std::min(held + count, end);
    if (first < last) found.push_back({.held = first, .whole = whole + first - held, .count = last - first});
  };
  if (partition.split == Split::row) {
    const std::int64_t width = parameter.shape[1];
    for (std::int64_t row = begin / width; row * width < end; ++row)
      add(row * width, row * partition.full + partition.part * width, width);
    return found;
  }
  const std::int64_t inner =
      std::accumulate(parameter.shape.begin() + 1, parameter.shape.end(), std::int64_t{1}, std::multiplies<>());
  const std::int64_t held_rows = parameter.shape[0] / partition.sections;
  const std::int64_t whole_rows = partition.full / partition.sections;
  const std::int64_t true_rows = std::clamp<std::int64_t>(whole_rows - partition.part * held_rows, 0, held_rows);
  for (int section = 0; section < partition.sections; ++section)
    add(section * held_rows * inner, (section * whole_rows + partition.part * held_rows) * inner, true_rows * inner);
  return found;
}

Parameter as_held_by(Parameter parameter, int rank) {
  if (!parameter.partition) return parameter;
  parameter.partition->part = parameter.partition->split == Split::replicated ? 0 : rank / parameter.partition->copies;
  parameter.partition->copy = rank % parameter.partition->copies;
  return parameter;
}

VocabularyPart vocabulary_part(std::int64_t vocab, const TensorPart& part) {
  const std::int64_t rows = (vocab + part.ranks - 1) / part.ranks;
  const std::int64_t first = std::min(vocab, part.rank * rows);
  return {.first = first, .count = std::min(rows, vocab - first)};
}

bool has_replicated_gradients(const ParameterBlock& block) {
  return std::any_of(block.parameters.begin(), block.parameters.end(),
                     [](const Parameter& p) { return p.partition && p.partition->sum_gradient; });
}

}  // namespace trireme::model
