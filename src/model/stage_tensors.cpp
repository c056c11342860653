// SPDX-License-Identifier: Apache-2.0
#include "trireme/model/stage_tensors.hpp"

#include "trireme/base/error.hpp"
#include "trireme/model/tensor_plan.hpp"

namespace trireme::model {
namespace {

struct InputAndOutput {
  TensorId input, output;
};

InputAndOutput tensors_of(StageKind kind) {
  using enum TensorId;
  switch (kind) {
    case StageKind::embedding: return {residual, branch_output};
    case StageKind::norm:
    case StageKind::input: return {residual, normed};
    case StageKind::attention_branch:
    case StageKind::mlp_branch: return {normed, branch_output};
    case StageKind::projection: return {normed, projected};
    case StageKind::qk_norm: return {projected, projected};
    case StageKind::attend: return {projected, branch_output};
    case StageKind::core_attention: return {projected, attended};
    case StageKind::output: return {attended, branch_output};
    case StageKind::post_norm: return {branch_output, residual};
    case StageKind::logits: return {normed, vocabulary};
    case StageKind::route: return {residual, permuted_tokens};
    case StageKind::experts: return {permuted_tokens, expert_output};
    case StageKind::merge: return {expert_output, residual};
    case StageKind::positions:
    case StageKind::attention:
    case StageKind::mlp:
    case StageKind::moe:
    case StageKind::head: return {residual, residual};
  }
  throw BugError("tensors_of: unknown kind of stage");
}

using Specs = std::vector<TensorSpec>;
constexpr bool waits = true;

Specs operator+(Specs a, const Specs& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TensorSpec gradient_by(TensorId id, Size size) {
  return {.id = id, .size = size, .policy = SavePolicy::never, .waits = true, .gradient = true};
}

/// The tables of stages with these sizes.
class Tables {
  using enum TensorId;
  using enum SavePolicy;

 public:
  explicit Tables(const Sizes& sizes) : s_(sizes), decoder_(sizes.decoder) {}

  [[nodiscard]] Specs input(bool is_read_again) const { return {{x, on_stream(s_.hidden), save, is_read_again}}; }
  /// is_read_again: a Rebuild reads its input and statistics between the parts of a backward.
  [[nodiscard]] Specs norm(bool is_read_again) const {
    return input(is_read_again) +
           Specs{{norm_statistics, on_stream(norm_parameters_, Element::fp32), save, is_read_again}} +
           weights_of_norm(norm_weight, norm_bias);
  }
  [[nodiscard]] Specs post_norm(bool is_read_again) const {
    return Specs{{post_norm_input, on_stream(s_.hidden), save, is_read_again},
                 {post_norm_statistics, on_stream(norm_parameters_, Element::fp32), save, is_read_again}} +
           weights_of_norm(post_norm_weight, post_norm_bias);
  }
  /// A sublayer: its branch, the norms around it, and the normed input.
  [[nodiscard]] Specs sublayer(const Specs& branch) const {
    Specs out = decoder_.pre_norm ? norm(false) : input(waits);
    if (decoder_.post_norm) out = out + post_norm(false);
    out = out + branch;
    if (decoder_.pre_norm) out.push_back({normed, on_stream(s_.hidden), cheap, waits});
    return out;
  }

  [[nodiscard]] Specs projection() const {
    if (decoder_.latent) return latent_projection(*decoder_.latent);
    const Specs out{gradient_by(projected, token(projected_width()))};
    return decoder_.qk_norm == QkNorm::head ? out + qk_norm(false) : out;
  }
  [[nodiscard]] Specs qk_norm(bool is_read_again) const {
    return Specs{{raw_qk, token(q_width() + kv_width()), save, is_read_again}} + statistics_of_heads(is_read_again);
  }
  [[nodiscard]] Specs core_attention(bool is_read_again) const {
    return {{projected, token(projected_width()), save},
            {attended, token(q_width()), save, is_read_again},
            {logsumexp, token(s_.heads, Element::fp32), save}};
  }
  [[nodiscard]] Specs attend() const {
    if (decoder_.latent) return latent_attend(*decoder_.latent);
    const Size cached{Per::cached_token, kv_width()};
    return d_output() + core_attention(waits) +
           Specs{{cached_keys, cached, kv_cache}, {cached_values, cached, kv_cache}};
  }
  [[nodiscard]] Specs output() const { return d_output() + Specs{{attended, token(q_width()), save, waits}}; }
  [[nodiscard]] Specs attention_branch() const {
    if (decoder_.latent) return latent_branch(*decoder_.latent);
    const Specs out = attend() + Specs{gradient_by(projected, token(projected_width()))};
    return decoder_.qk_norm == QkNorm::none ? out : out + statistics_of_heads(false);
  }

  /// Keys and values are expanded again in the backward.
  [[nodiscard]] Specs latent_branch(const Latent& l) const {
    return d_output() + Specs{{projected, token(l.compressed()), save}, {latent_queries, token(q_width()), save}} +
           of_compression(l, l.q_rank + l.kv_rank) + latent_attention() +
           Specs{gradient_by(latent_heads, token(s_.heads * l.expanded()))};
  }
  [[nodiscard]] Specs latent_projection(const Latent& l) const {
    return Specs{{raw_qk, token(l.compressed()), save}} + of_compression(l, l.q_rank);
  }
  /// The gradient of the expansion's weights waits itself.
  [[nodiscard]] Specs latent_attend(const Latent& l) const {
    return d_output() + Specs{{projected, token(q_width() + gathered_width(s_)), save}} + latent_attention() +
           Specs{gradient_of_weight(latent_heads, s_.heads * l.expanded() * l.kv_rank)};
  }

  [[nodiscard]] Specs mlp_branch() const {
    const Size in = token((decoder_.gated() ? 2 : 1) * s_.intermediate);
    return d_output() +
           Specs{{gate_up, in, save}, {inner, token(s_.intermediate), cheap, waits}, gradient_by(gate_up, in)};
  }

  [[nodiscard]] Specs route() const {
    const Experts& experts = *decoder_.experts;
    const Size logits = on_stream(experts.count, Element::fp32);
    Specs out{{router_logits, logits, save},
              {chosen_experts, on_stream(experts.per_token, Element::int32), always},
              gradient_by(router_logits, logits)};
    if (experts.shared == SharedExperts::none) return sublayer(out);
    const Size in = on_stream(2 * experts.shared_size), width = on_stream(experts.shared_size);
    out = out + d_output(Per::stream_token) + Specs{{shared_gate_up, in, save}, gradient_by(shared_gate_up, in)};
    const bool gated = experts.shared == SharedExperts::gated;
    if (gated) {
      const Size logit = on_stream(1, Element::fp32);
      out = out + Specs{{shared_gate, logit, save},
                        gradient_by(shared_gate, logit),
                        {weighted_shared_inner, width, never, waits}};
    }
    return sublayer(out) + Specs{{shared_inner, width, cheap, !gated}};
  }
  /// rows, width: of the values between the products of this rank's experts.
  [[nodiscard]] static Specs experts(Per rows, std::int64_t width) {
    return {{expert_gate_up, {rows, 2 * width}, save},
            {expert_inner, {rows, width}, cheap},
            {weighted_expert_inner, {rows, width}, never, waits},
            gradient_by(expert_gate_up, {rows, 2 * width})};
  }
  [[nodiscard]] Specs sharded_experts() const {
    const Size rows{Per::row, s_.hidden};
    return Specs{{permuted_tokens, rows, save, waits},
                 {permuted_probs, {Per::row, 1, Element::fp32}, save},
                 gradient_by(expert_output, rows)} +
           experts(Per::row, decoder_.experts->size);
  }
  [[nodiscard]] Specs moe() const {
    Specs out = route();
    for (TensorSpec& tensor : out) tensor.waits |= tensor.id == chosen_experts;
    if (decoder_.experts->shared == SharedExperts::none) out = out + d_output(Per::stream_token);
    return out + experts(Per::stream_token, decoder_.experts->per_token * decoder_.experts->size);
  }

 private:
  static Size token(std::int64_t width, Element element = Element::compute) { return {Per::token, width, element}; }
  static Size on_stream(std::int64_t width, Element element = Element::compute) {
    return {Per::stream_token, width, element};
  }
  [[nodiscard]] std::int64_t q_width() const { return s_.heads * s_.head_dim; }
  [[nodiscard]] std::int64_t output_width() const { return s_.heads * s_.value_dim(); }
  [[nodiscard]] std::int64_t kv_width() const { return s_.kv_heads * s_.head_dim; }
  [[nodiscard]] std::int64_t projected_width() const { return q_width() + 2 * kv_width(); }

  /// Latents and queries. kept: width of the normed latents that gradients of weights read.
  [[nodiscard]] Specs of_compression(const Latent& l, std::int64_t kept) const {
    Specs out{{latent_statistics, token(l.q_rank > 0 ? 2 : 1, Element::fp32), save}};
    if (kept > 0) out.push_back({latents, token(kept), cheap, waits});
    out = out + Specs{gradient_by(projected, token(l.compressed())), gradient_by(latent_queries, token(q_width()))};
    if (l.q_rank > 0) out.push_back(gradient_of_weight(q_norm_weight, l.q_rank));
    out.push_back(gradient_of_weight(k_norm_weight, l.kv_rank));
    return out;
  }
  [[nodiscard]] Specs latent_attention() const {
    return {{attended, token(output_width()), save, waits},
            {logsumexp, token(s_.heads, Element::fp32), save},
            {cached_keys, {Per::cached_token, q_width()}, kv_cache},
            {cached_values, {Per::cached_token, output_width()}, kv_cache}};
  }

  static TensorSpec gradient_of_weight(TensorId id, std::int64_t width) {
    return gradient_by(id, {Per::once, width, Element::fp32});
  }
  [[nodiscard]] Specs weights_of_norm(TensorId weight, TensorId bias) const {
    Specs out{gradient_of_weight(weight, s_.hidden)};
    if (decoder_.norm == NormKind::layer) out.push_back(gradient_of_weight(bias, s_.hidden));
    return out;
  }
  [[nodiscard]] Specs statistics_of_heads(bool is_read_again) const {
    const bool by_head = decoder_.qk_norm == QkNorm::head;
    return {{qk_statistics, token(by_head ? s_.heads + s_.kv_heads : 2, Element::fp32), save, is_read_again},
            gradient_of_weight(q_norm_weight, by_head ? s_.head_dim : q_width()),
            gradient_of_weight(k_norm_weight, by_head ? s_.head_dim : kv_width())};
  }
  [[nodiscard]] Specs d_output(Per per = Per::token) const { return {gradient_by(branch_output, {per, s_.hidden})}; }

  const Sizes& s_;
  const Decoder& decoder_;
  std::int64_t norm_parameters_ = static_cast<std::int64_t>(norm_parameters(decoder_));
};

}  // namespace

std::vector<TensorSpec> kept_tensors(StageKind kind, const Sizes& sizes) {
  using enum TensorId;
  const Tables tables(sizes);
  switch (kind) {
    case StageKind::embedding:
    case StageKind::positions:
    case StageKind::logits:
    case StageKind::merge: return {};
    case StageKind::head: return {{x, {Per::token, sizes.hidden}, SavePolicy::save}};
    case StageKind::norm: return tables.norm(waits);
    case StageKind::post_norm: return tables.post_norm(waits);
    case StageKind::input: return tables.input(waits);
    case StageKind::projection: return tables.projection();
    case StageKind::qk_norm: return tables.qk_norm(waits);
    case StageKind::core_attention: return tables.core_attention(false);
    case StageKind::attend: return tables.attend();
    case StageKind::output: return tables.output();
    case StageKind::attention_branch: return tables.attention_branch();
    case StageKind::mlp_branch: return tables.mlp_branch();
    case StageKind::route: return tables.route();
    case StageKind::experts: return tables.sharded_experts();
    case StageKind::attention: return tables.sublayer(tables.attention_branch());
    case StageKind::mlp: return tables.sublayer(tables.mlp_branch());
    case StageKind::moe: return tables.moe();
  }
  throw BugError("kept_tensors: unknown kind of stage");
}

std::int64_t bytes_of(Element element, DType compute) { return element == Element::compute ? size_of(compute) : 4; }

Bytes bytes_of(const Size& size, const Counts& counts, DType compute) {
  const auto count = [&] {
    switch (size.per) {
      case Per::once: return std::int64_t{1};
      case Per::token: return counts.tokens;
      case Per::stream_token: return counts.stream_tokens;
      case Per::row: return counts.rows;
      case Per::cached_token: return counts.cached_tokens;
    }
    throw BugError("a size is per token or once");
  };
  return Bytes{count() * size.width * bytes_of(size.element, compute)};
}

bool saves(SavePolicy policy, Keep keep) {
  using enum SavePolicy;
  switch (policy) {
    case never: return false;
    case save: return keep == Keep::products || keep == Keep::all;
    case cheap: return keep == Keep::all;
    case always: return keep != Keep::kv_cache;
    case kv_cache: return keep == Keep::kv_cache;
  }
  throw BugError("a tensor has a policy");
}

TensorId input_of(StageKind kind) { return tensors_of(kind).input; }
TensorId output_of(StageKind kind) { return tensors_of(kind).output; }

TensorId result_of(const Stage& stage) {
  const TensorId output = output_of(stage.kind);
  return output == TensorId::branch_output && adds_to_stream(stage) ? TensorId::residual : output;
}

TensorId upstream_of(const Stage& stage) {
  const TensorId output = output_of(stage.kind);
  const bool separate = stage.leave == Exchange::scatter_sequence || stage.sum_is_normed;
  return output == TensorId::branch_output && !separate ? TensorId::residual : output;
}

}  // namespace trireme::model
