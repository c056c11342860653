// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/activations.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.hpp"

namespace trireme::model {

std::vector<Bytes> saved_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute, Keep keep) {
  invariant(keep != Keep::input && keep != Keep::kv_cache, "a stage that keeps nothing saves no tensors");
  const auto values = [&](std::int64_t width) { return Bytes{tokens * width * size_of(compute)}; };
  const auto statistics = [&](std::int64_t width) { return Bytes{tokens * width * 4}; };  // fp32
  const auto norm = static_cast<std::int64_t>(norm_parameters(sizes.decoder));
  const std::int64_t inner = sizes.decoder.gated() ? 2 : 1;
  std::vector<Bytes> out;
  const auto add_attention = [&] {
    out.insert(out.end(), {values((sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim),
                           values(sizes.heads * sizes.head_dim), statistics(sizes.heads)});
    if (sizes.decoder.qk_norm == QkNorm::head) out.push_back(statistics(sizes.heads + sizes.kv_heads));
    if (sizes.decoder.qk_norm == QkNorm::width) out.push_back(statistics(2));
  };
  // Tensors that a sublayer's norms save, before its branch.
  const auto add_norms = [&] {
    out.push_back(values(sizes.hidden));
    if (sizes.decoder.pre_norm) out.push_back(statistics(norm));
    if (sizes.decoder.post_norm) out.insert(out.end(), {values(sizes.hidden), statistics(norm)});
  };
  // The normed input, where there is one.
  const auto add_normed = [&] {
    if (keep == Keep::all && sizes.decoder.pre_norm) out.push_back(values(sizes.hidden));
  };
  switch (kind) {
    case StageKind::embedding:
    case StageKind::positions:
    case StageKind::logits: return {};
    case StageKind::projection: {
      const std::int64_t heads = sizes.heads + sizes.kv_heads;
      if (sizes.decoder.qk_norm != QkNorm::head) return {};
      return {values(heads * sizes.head_dim), statistics(heads)};
    }
    case StageKind::qk_norm: return {values((sizes.heads + sizes.kv_heads) * sizes.head_dim), statistics(2)};
    case StageKind::output: return {values(sizes.heads * sizes.head_dim)};
    case StageKind::attend:
    case StageKind::core_attention:
      return {values((sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim), values(sizes.heads * sizes.head_dim),
              statistics(sizes.heads)};
    case StageKind::attention:
      add_norms();
      add_attention();
      add_normed();
      return out;
    case StageKind::mlp:
      add_norms();
      out.push_back(values(inner * sizes.intermediate));
      if (keep == Keep::all) out.push_back(values(sizes.intermediate));
      add_normed();
      return out;
    case StageKind::moe: {
      const Experts& experts = *sizes.decoder.experts;
      out = saved_tensors(StageKind::route, sizes, tokens, compute, keep);
      out.push_back(values(experts.per_token * 2 * experts.size));
      if (keep == Keep::all) out.push_back(values(experts.per_token * experts.size));
      return out;
    }
    case StageKind::route: {
      const Experts& experts = *sizes.decoder.experts;
      add_norms();
      out.insert(out.end(), {statistics(experts.count), statistics(experts.per_token)});
      if (experts.shared != SharedExperts::none) out.push_back(values(2 * experts.shared_size));
      if (experts.shared == SharedExperts::gated) out.push_back(statistics(1));
      add_normed();
      if (keep == Keep::all && experts.shared != SharedExperts::none) out.push_back(values(experts.shared_size));
      return out;
    }
    case StageKind::experts:  // tokens: rows of all ranks
      out = {values(sizes.hidden), statistics(1), values(2 * sizes.decoder.experts->size)};
      if (keep == Keep::all) out.push_back(values(sizes.decoder.experts->size));
      return out;
    case StageKind::merge: return {};
    case StageKind::head: return {values(sizes.hidden)};
    case StageKind::norm:
    case StageKind::post_norm: return {values(sizes.hidden), statistics(norm)};
    case StageKind::input: return {values(sizes.hidden)};
    case StageKind::attention_branch: add_attention(); return out;
    case StageKind::mlp_branch:
      out = {values(inner * sizes.intermediate)};
      if (keep == Keep::all) out.push_back(values(sizes.intermediate));
      return out;
  }
  throw BugError("saved_tensors: unknown kind of stage");
}

std::vector<Bytes> decided_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens) {
  if (kind != StageKind::moe && kind != StageKind::route) return {};
  return {Bytes{tokens * sizes.decoder.experts->per_token * std::int64_t{sizeof(std::int32_t)}}};
}

namespace {

/// Pending tensors of a layer with experts, or of its parts under expert parallelism.
Pending pending_of_experts(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute, bool all) {
  Pending out;
  const auto add = [&](Bytes bytes, bool saved) {
    out.tensors.push_back(bytes);
    if (!saved) out.fresh += bytes;
  };
  const auto values = [&](std::int64_t width) { return Bytes{tokens * width * size_of(compute)}; };
  const Experts& experts = *sizes.decoder.experts;
  const bool shares = experts.shared != SharedExperts::none, gated = experts.shared == SharedExperts::gated;
  if (kind == StageKind::experts) {
    add(values(sizes.hidden), true);       // rows
    add(values(sizes.hidden), false);      // the gradient by what became of them
    add(values(experts.size), false);      // what down reads
    add(values(2 * experts.size), false);  // the gradient by gate|up
    return out;
  }
  if (kind == StageKind::moe || shares) add(values(sizes.hidden), false);  // the gradient by its output
  if (kind == StageKind::moe) {
    add(Bytes{tokens * experts.per_token * 4}, true);  // the choice
    add(values(experts.per_token * experts.size), false);
    add(values(experts.per_token * 2 * experts.size), false);
  }
  add(values(sizes.hidden), all);                 // h
  add(Bytes{tokens * experts.count * 4}, false);  // the gradient by the router's logits
  for (std::size_t i = 0; i < norm_parameters(sizes.decoder); ++i) add(Bytes{sizes.hidden * 4}, false);
  if (shares) {
    add(values(experts.shared_size), all && !gated);
    add(values(2 * experts.shared_size), false);
  }
  if (gated) add(Bytes{tokens * 4}, false);
  return out;
}

}  // namespace

Pending pending_tensors(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute, Keep keep) {
  if (kind == StageKind::moe || kind == StageKind::route || kind == StageKind::experts)
    return pending_of_experts(kind, sizes, tokens, compute, keep == Keep::all);
  const bool whole = kind == StageKind::attention || kind == StageKind::mlp;
  const bool is_norm = kind == StageKind::norm || kind == StageKind::post_norm;
  if (kind == StageKind::input) return {.tensors = {Bytes{tokens * sizes.hidden * size_of(compute)}}, .fresh = {}};
  invariant(whole || is_branch(kind) || ends_attention(kind) || is_norm || kind == StageKind::qk_norm,
            "only transformer layers split their backward");
  Pending out;
  const auto add = [&](Bytes bytes, bool saved) {
    out.tensors.push_back(bytes);
    if (!saved) out.fresh += bytes;
  };
  const auto values = [&](std::int64_t width) { return Bytes{tokens * width * size_of(compute)}; };
  const Decoder& decoder = sizes.decoder;
  const bool all = keep == Keep::all;
  const auto norm = static_cast<std::int64_t>(norm_parameters(decoder));
  if (whole) add(values(sizes.hidden), all || !decoder.pre_norm);  // the branch's input
  if (kind == StageKind::qk_norm)                                  // what it saved
    for (const Bytes bytes : saved_tensors(kind, sizes, tokens, compute, keep)) add(bytes, true);
  else if (kind != StageKind::projection)
    add(values(sizes.hidden), is_norm);  // d_y; of a norm: x, and rstd
  if (is_norm) add(Bytes{tokens * norm * 4}, true);
  std::int64_t in_norms = whole ? (static_cast<int>(decoder.pre_norm) + static_cast<int>(decoder.post_norm)) : 0;
  if (is_norm) in_norms = 1;
  std::int64_t gradients = in_norms * norm * sizes.hidden;
  const bool attention = kind == StageKind::attention || kind == StageKind::attention_branch;
  if (attention || ends_attention(kind)) add(values(sizes.heads * sizes.head_dim), true);
  if (attention || kind == StageKind::projection) {
    add(values((sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim), false);
    if (decoder.qk_norm == QkNorm::head) gradients += 2 * sizes.head_dim;
  } else if (kind == StageKind::mlp || kind == StageKind::mlp_branch) {
    add(values(sizes.intermediate), all);
    add(values((decoder.gated() ? 2 : 1) * sizes.intermediate), false);
  }
  if (kind == StageKind::qk_norm || (attention && decoder.qk_norm == QkNorm::width))
    gradients += (sizes.heads + sizes.kv_heads) * sizes.head_dim;
  if (gradients > 0) add(Bytes{gradients * 4}, false);
  return out;
}

Bytes saved_bytes(StageKind kind, const Sizes& sizes, std::int64_t tokens, DType compute, Keep keep) {
  const std::vector<Bytes> tensors = saved_tensors(kind, sizes, tokens, compute, keep);
  return std::accumulate(tensors.begin(), tensors.end(), Bytes{});
}

bool recomputes(const ComputeBlock& block) {
  return std::any_of(block.stages.begin(), block.stages.end(), [](const Stage& stage) {
    return stage.kind == StageKind::attention || stage.kind == StageKind::mlp || stage.kind == StageKind::moe ||
           stage.kind == StageKind::route || is_branch(stage.kind);
  });
}

}  // namespace trireme::model
