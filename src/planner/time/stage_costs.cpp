// SPDX-License-Identifier: Apache-2.0
#include "planner/time/stage_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::planner {
namespace {

/// Fraction of a stage's kernel traffic and launches in each phase.
double part_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
    case Phase::recompute: return 0.4;
    case Phase::backward:
    case Phase::backward_input: return 0.6;
    case Phase::backward_weight: return 0;
  }
  return 0;
}

/// Bytes of an activation function of one operand over those of a gated one, which reads and writes two.
constexpr double plain_activation = 10.0 / 18;

/// Products per weight.
int products(Phase phase) { return phase == Phase::backward ? 2 : 1; }

/// Products per weight that round their operands to fp8, excluding the weight gradients.
int rounded_products(Phase phase, Fp8 fp8) { return fp8 == Fp8::none || phase == Phase::backward_weight ? 0 : 1; }

/// Time of a product of fp8 operands, in bf16 products. On CPUs operands are rounded and multiplied in fp32.
double time_of_fp8(const Machine& machine, bool on_gpu) {
  const double factor = on_gpu ? machine.fp8_factor : machine.fp32_factor;
  if (factor > 0) return 1 / factor;
  throw ConfigError(fmt::format(
      "precision.fp8: machine \"{}\" has no rate of such products; set gpu.fp8_factor in its file if its GPUs have "
      "them, or precision.fp8 = \"none\"",
      machine.name));
}

/// Adds the terms of one block's stages.
class Stages {
 public:
  Stages(const StageContext& context, Phase phase, std::vector<Term>* terms)
      : c_(context), model_(context.of.model), phase_(phase), terms_(terms) {}

  void add(const model::Stage& stage, bool last_of_block) {
    using Kind = model::StageKind;
    const Kind kind = stage.kind;
    if (model::looks_up(kind)) return bytes("lookup", 10, all_tokens(), model_.sizes.hidden);
    const model::Decoder& decoder = model_.sizes.decoder;
    product_terms(stage, last_of_block && phase_ == Phase::recompute && !decoder.post_norm);
    if (kind == Kind::attention || kind == Kind::attention_branch || model::attends(kind)) attention(stage.window);
    const Kernels& k = c_.software.kernels;
    if (kind == Kind::norm || kind == Kind::post_norm)
      bytes("norm and residual", k.norm, stream_tokens(), model_.sizes.hidden);
    if (kind == Kind::qk_norm)
      bytes("norm of queries and keys", k.norm, all_tokens(),
            (model_.held.heads + model_.held.kv_heads) * model_.held.head_dim);
    const int norms = kind == Kind::head ? 1 : (decoder.pre_norm ? 1 : 0) + (decoder.post_norm ? 1 : 0);
    if (kind == Kind::attention || kind == Kind::mlp || kind == Kind::head)
      bytes("norm and residual", k.norm * norms, all_tokens(), model_.sizes.hidden);
    if (kind == Kind::moe || kind == Kind::route)
      bytes("norm and residual", k.norm * norms, stream_tokens(), model_.sizes.hidden);
    if (kind == Kind::attention || kind == Kind::attention_branch || kind == Kind::projection)
      bytes("layout of q, k, v and RoPE", k.projections, all_tokens(), model_.held.heads * model_.held.head_dim);
    if (kind == Kind::mlp || kind == Kind::mlp_branch)
      bytes("activation function", k.activation * (decoder.gated() ? 1 : plain_activation), all_tokens(),
            model_.held.intermediate);
    if (kind == Kind::moe || kind == Kind::experts)
      bytes("activation function", k.activation, stream_tokens(), decoder.experts->per_token * decoder.experts->size);
    if ((kind == Kind::moe || kind == Kind::route) && decoder.experts->shared != model::SharedExperts::none)
      bytes("activation function", k.activation, stream_tokens(), decoder.experts->shared_size);
    if (kind == Kind::moe || kind == Kind::merge)
      bytes("rows to experts and back", 8, stream_tokens(), decoder.experts->per_token * model_.sizes.hidden);
    if (kind == Kind::head || kind == Kind::logits) bytes("logits", k.logit, all_tokens(), model_.held.vocab);
    launched_ = launched_ || kind != Kind::head;
  }

  [[nodiscard]] double seconds(double part_of_block) {
    if (!launched_ || c_.of.graphs) return seconds_;
    const double split = phase_ == Phase::backward_input || phase_ == Phase::backward_weight ? 0.3
                         : phase_ == Phase::backward                                         ? 0.6
                                                                                             : 0.4;
    const double host = c_.machine.layer_seconds * split * part_of_block;
    if (!c_.of.replay_options.on_gpu) return beside_kernels(host);
    if (host <= seconds_) return seconds_;
    if (terms_ != nullptr)
      terms_->push_back({"waits for launches",
                         fmt::format("{:.3g} ms a layer x {:.2f} - the kernels above", c_.machine.layer_seconds * 1e3,
                                     split * part_of_block),
                         host - seconds_});
    return host;
  }

 private:
  [[nodiscard]] std::int64_t all_tokens() const { return c_.of.replay_options.tokens; }
  [[nodiscard]] std::int64_t stream_tokens() const {
    return model_.part.sequence_parallel ? all_tokens() / model_.part.ranks : all_tokens();
  }
  /// A CPU rank runs its kernels on the launching thread.
  [[nodiscard]] double beside_kernels(double host) const {
    if (terms_ != nullptr && host > 0)
      terms_->push_back({"calls", fmt::format("a part of {:.3g} ms a layer", c_.machine.layer_seconds * 1e3), host});
    return seconds_ + host;
  }
  void note(const char* name, double seconds, const std::string& formula) const {
    if (terms_ != nullptr) terms_->push_back({name, formula, seconds});
  }

  void product_terms(const model::Stage& stage, bool without_last) {
    std::vector<model::ParamRef> weights;
    for (const model::ParamRef ref : stage.parameters)
      if (model_[ref].shape.size() == 2) weights.push_back(ref);
    if (stage.kind == model::StageKind::moe) {
      const auto& router = model_[weights.front()].shape;
      add_product("router", 1, f64(stream_tokens()), router[0], router[1], Fp8::none);
      shared_terms(stage.fp8);
      return expert_terms(without_last, stage.fp8);
    }
    // In a recompute the experts' outputs are not read.
    if (stage.kind == model::StageKind::experts) return expert_terms(phase_ == Phase::recompute, stage.fp8);
    if (without_last && !weights.empty()) weights.pop_back();
    const std::int64_t tokens = stage.kind == model::StageKind::route ? stream_tokens() : all_tokens();
    const bool again = phase_ == Phase::backward || phase_ == Phase::backward_input;
    for (const model::ParamRef ref : weights) {
      const auto& shape = model_[ref].shape;
      const bool expands = model_[ref].role == model::Role::kv_b;  // of all context ranks' tokens
      const int ranks = expands && stage.enter == model::Exchange::gather_keys ? model_.part.context.ranks : 1;
      add_product("product", 1, f64(tokens * ranks), shape[0], shape[1], stage.fp8.of(model_[ref].role),
                  expands && again ? 1 : 0);
    }
  }

  /// again: products in addition to those of the phase.
  void add_product(const char* name, std::int64_t times, double tokens, std::int64_t out, std::int64_t in, Fp8 fp8,
                   int again = 0) {
    const double flops = 2 * tokens * f64(out) * f64(in);
    const double rate = product_rate(c_.machine, flops, c_.of.replay_options.compute);
    const int rounded = rounded_products(phase_, fp8);
    const double in_bf16 =
        products(phase_) + again - rounded + (rounded > 0 ? time_of_fp8(c_.machine, c_.of.replay_options.on_gpu) : 0);
    const double seconds = in_bf16 * f64(times) * flops / rate;
    if (terms_ != nullptr)
      note(name, seconds,
           fmt::format("{}{:.3g} x 2 x {} x {} x {} / {:.4g} FLOP/s", times > 1 ? fmt::format("{} x ", times) : "",
                       in_bf16, tokens, out, in, rate));
    seconds_ += seconds;
    if (rounded > 0) rounding(times, tokens, out, in);
  }

  /// Operands are read and written as bytes; the columns of a weight are read twice, for their scales first.
  void rounding(std::int64_t times, double tokens, std::int64_t out, std::int64_t in) {
    const bool backward = phase_ == Phase::backward || phase_ == Phase::backward_input;
    const double of_weight = f64(out) * f64(in) * (backward ? 5 : 3);
    const double count = f64(times) * (3 * tokens * f64(backward ? out : in) + of_weight);
    const double seconds = count / c_.machine.memory_bandwidth;
    if (terms_ != nullptr)
      note("rounding to fp8", seconds, fmt::format("{:.4g} B / {:.4g} B/s", count, c_.machine.memory_bandwidth));
    seconds_ += seconds;
  }

  /// Experts of every token.
  void shared_terms(const model::Fp8Products& fp8) {
    const model::Experts& experts = *model_.sizes.decoder.experts;
    if (experts.shared == model::SharedExperts::none) return;
    add_product("gate and up of shared experts", 1, f64(stream_tokens()), 2 * experts.shared_size, model_.sizes.hidden,
                fp8.of(model::Role::shared_gate));
    add_product("down of shared experts", 1, f64(stream_tokens()), model_.sizes.hidden, experts.shared_size,
                fp8.of(model::Role::shared_down));
  }

  /// This rank's experts with equal numbers of rows. without_last: without their down projection.
  void expert_terms(bool without_last, const model::Fp8Products& fp8) {
    const model::Experts& experts = *model_.sizes.decoder.experts;
    const std::int64_t held = model_.part.experts.held(experts.count);
    const double each = f64(stream_tokens() * experts.per_token) / f64(held);
    add_product("gate and up of experts", held, each, 2 * experts.size, model_.sizes.hidden,
                fp8.of(model::Role::expert_gate));
    if (!without_last)
      add_product("down of experts", held, each, model_.sizes.hidden, experts.size, fp8.of(model::Role::expert_down));
  }

  /// Causal half: 2 T s heads head_dim forward (the mean of head_dim and the width of values); backward computes 2.5
  /// times that at 0.8 of the rate. With a window w shorter than s a query sees w - w^2 / 2s keys on average instead of
  /// s / 2.
  void attention(std::int64_t window) {
    if (phase_ == Phase::backward_weight) return;
    const double rate = attention_rate(c_.machine, model_.held.head_dim, c_.of.replay_options.compute);
    const bool backward = phase_ == Phase::backward || phase_ == Phase::backward_input;
    const double length = f64(c_.of.seq_len), seen = f64(window > 0 ? std::min(window, c_.of.seq_len) : c_.of.seq_len);
    const double keys = seen * (2 - seen / length);  // twice the mean
    const double width = f64(model_.held.head_dim + model_.held.value_dim()) / 2;
    const double seconds =
        2 * f64(all_tokens()) * keys * (f64(model_.held.heads) * width) * (backward ? 2.5 / 0.8 : 1) / rate;
    if (terms_ != nullptr)
      note("attention", seconds,
           fmt::format("{}2 x {} x {} x {} x {} / {:.4g} FLOP/s", backward ? "2.5 / 0.8 x " : "", all_tokens(), keys,
                       model_.held.heads, width, rate));
    seconds_ += seconds;
  }

  void bytes(const char* name, double per_value, std::int64_t tokens, std::int64_t width) {
    const double wide = f64(size_of(c_.of.replay_options.compute)) / 2;
    const double seconds = part_of(phase_) * per_value * wide * f64(tokens) * f64(width) / c_.machine.memory_bandwidth;
    if (terms_ != nullptr && seconds > 0)
      note(name, seconds,
           fmt::format("{} x {} B x {} x {} / {:.4g} B/s", part_of(phase_), per_value * wide, tokens, width,
                       c_.machine.memory_bandwidth));
    seconds_ += seconds;
  }

  const StageContext& c_;
  const model::Model& model_;
  Phase phase_;
  std::vector<Term>* terms_;
  double seconds_ = 0;
  bool launched_ = false;
};

}  // namespace

double stage_seconds(const StageContext& context, Block block, const std::optional<Stage>& stage, Phase phase,
                     std::vector<Term>* terms) {
  const model::ComputeBlock& whole = context.of.model[block];
  const schedule::StageRange range = schedule::stages_of(whole, stage);
  const int count = static_cast<int>(whole.stages.size());
  Stages stages(context, phase, terms);
  for (int s = range.first; s < range.last; ++s) stages.add(whole.stages[static_cast<std::size_t>(s)], s + 1 == count);
  return stages.seconds(f64(range.last - range.first) / count);
}

}  // namespace trireme::planner
