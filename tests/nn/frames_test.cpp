// SPDX-License-Identifier: Apache-2.0
// Every stage between exchanges on frames that record: an op uses exactly the tensors that the schedule lists for it,
// and a stage keeps each tensor of its table; another one is a BugError.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "nn/reference.hpp"
#include "trireme/model/tensor_plan.hpp"
#include "trireme/schedule/access.hpp"

namespace trireme::nn::frames_test {
namespace {

using model::StageKind, schedule::Phase, schedule::BackwardPart;
using enum model::TensorId;

constexpr std::int64_t rows = 2, seq_len = 16, tokens = rows * seq_len;

struct Case {
  std::string architecture;
  model::TensorPart part;
};

/// Decoders with and without each norm, with biases and learned positions, and mixtures; on the mesh axes whose
/// exchanges keep the shape of the residual stream.
std::vector<Case> cases() {
  const model::TensorPart tensor{.rank = 0, .ranks = 2}, experts{.experts = {.rank = 0, .ranks = 2}};
  const model::TensorPart gather{.context = {.rank = 0, .ranks = 2}};
  const model::TensorPart heads{.context = {.rank = 0, .ranks = 2, .method = config::ContextMethod::heads}};
  std::vector<Case> all;
  for (const char* const architecture : {"llama", "olmo2", "gemma2", "qwen3", "gpt2"})
    for (const model::TensorPart& part : {tensor, gather, heads}) all.push_back({architecture, part});
  for (const model::TensorPart& part : {tensor, gather}) all.push_back({"youtu", part});
  for (const char* const architecture : {"qwen3_moe", "qwen2_moe", "glm4_moe"}) all.push_back({architecture, experts});
  return all;
}

model::Model build(const Case& c) {
  config::Model config{.architecture = c.architecture,
                       .vocab_size = 98,
                       .hidden_size = 40,
                       .intermediate_size = 56,
                       .layers = 1,
                       .heads = 4};
  if (c.architecture == "gpt2") config.positions = 2 * seq_len;
  if (c.architecture == "youtu")
    config.q_rank = 12, config.kv_rank = 10, config.nope_dim = 6, config.rope_dim = 4, config.value_dim = 5;
  if (c.architecture.ends_with("_moe")) {
    config.experts = 4;
    config.experts_per_token = 2;
    config.expert_size = 24;
    if (c.architecture != "qwen3_moe") config.shared_size = 24;
  }
  return model::build(config, c.part);
}

/// The stages of a block, one after the other on one rank: an exchange leaves a tensor of the right shape.
class Blocks {
 public:
  explicit Blocks(const Case& c) : model_(build(c)) {
    batch_ = test::microbatch(rows, seq_len, 98);
    if (const auto& e = model_.sizes.decoder.experts; e && e->choice_bias) batch_.choice_bias = at::zeros({e->count});
    values_.residual(Phase::forward) = at::randn({tokens, 40});
    values_.residual(Phase::backward) = at::randn({tokens, 40});
  }

  void check() {
    for (int b = 0; b < model_.blocks(); ++b) {
      const model::ComputeBlock& block = model_[Block{b}];
      if (!std::ranges::any_of(block.stages, model::is_partitioned)) continue;
      std::vector<Kept> kept;
      std::vector<Layer> layers;
      layers.reserve(block.stages.size());
      for (const model::Stage& stage : block.stages) layers.push_back(make_layer(model_, stage, 2 * seq_len, 0));
      for (const Layer& layer : layers) kept.emplace_back(layer.kept);
      const int count = static_cast<int>(block.stages.size());
      for (int s = 0; s < count; ++s)
        if (model::is_partitioned(block.stages[static_cast<std::size_t>(s)])) forward(Block{b}, s, layers, kept);
      for (int s = count - 1; s >= 0; --s)
        if (model::is_partitioned(block.stages[static_cast<std::size_t>(s)])) backward(Block{b}, s, layers, kept);
    }
  }

 private:
  [[nodiscard]] const model::Stage& stage(Block b, int s) const {
    return model_[b].stages[static_cast<std::size_t>(s)];
  }

  /// Runs one op of a stage and compares the tensors that it used with those of its list.
  void run(void (StageCode::*part)(StageFrame&) const, const Layer& layer, Kept& kept, const model::Stage& stage,
           Mode mode, Phase phase, const schedule::TensorAccess& listed, const std::string& what) {
    std::vector<at::Tensor> parameters;
    std::vector<Grad> gradients;
    for (const model::ParamRef ref : stage.parameters) {
      parameters.push_back(0.1 * at::randn(model_[ref].shape) + (model_[ref].shape.size() == 1 ? 1 : 0));
      gradients.push_back({.tensor = at::zeros(model_[ref].shape), .accumulate = false});
    }
    schedule::TensorSet used;
    {
      StageFrame f(values_, kept, {parameters, gradients, batch_, mode, routing_, losses_}, listed, phase,
                   [&](schedule::TensorSet of_op) { used = of_op; });
      ((*layer.code).*part)(f);
    }
    EXPECT_EQ(used, listed.reads | listed.writes) << what;
  }

  void forward(Block b, int s, const std::vector<Layer>& layers, std::vector<Kept>& kept) {
    const auto at = static_cast<std::size_t>(s);
    const model::Stage& of = stage(b, s);
    const std::string what = fmt::format("{}: forward {}.{}", model_.architecture, model_[b].name, of.name);
    arrive(of, Phase::forward);
    const schedule::Forward op{.block = b, .stage = Stage{s}, .microbatch = trireme::Microbatch{0}};
    run(&StageCode::forward, layers[at], kept[at], of, Mode::train_keep_all, Phase::forward,
        schedule::tensors_of(op, model_), what);
    for (const model::TensorSpec& spec : layers[at].kept) {
      const bool saved = !spec.gradient && model::saves(spec.policy, model::Keep::all) && of.kind != StageKind::merge;
      EXPECT_TRUE(!saved || kept[at][spec.id].defined()) << what << " keeps no tensor " << static_cast<int>(spec.id);
    }
    leave(of, Phase::forward);
  }

  void backward(Block b, int s, std::vector<Layer>& layers, std::vector<Kept>& kept) {
    const model::Stage& of = stage(b, s);
    // Merge reads the choice that the router keeps.
    const auto at = static_cast<std::size_t>(s), keeps = at - (of.kind == StageKind::merge ? 2 : 0);
    const std::string what = fmt::format("{}: backward {}.{}", model_.architecture, model_[b].name, of.name);
    arrive(of, Phase::backward);
    const bool splits = of.kind != StageKind::embedding && of.kind != StageKind::logits &&
                        of.kind != StageKind::core_attention && of.kind != StageKind::merge;
    schedule::Backward op{.block = b, .stage = Stage{s}, .microbatch = trireme::Microbatch{0}, .gradients = {}};
    if (!splits) {
      run(&StageCode::backward, layers[at], kept[keeps], of, Mode::train, Phase::backward,
          schedule::tensors_of(op, model_), what);
      return leave(of, Phase::backward);
    }
    op.part = BackwardPart::input;
    run(&StageCode::backward_input, layers[at], kept[keeps], of, Mode::train, Phase::backward,
        schedule::tensors_of(op, model_), what + ", input");
    for (const model::TensorSpec& spec : layers[at].kept) {
      const at::Tensor& left = spec.gradient ? kept[at].gradient(spec.id) : kept[at][spec.id];
      EXPECT_TRUE(!spec.waits || left.defined()) << what << " leaves no tensor " << static_cast<int>(spec.id);
    }
    leave(of, Phase::backward);
    if (!model::has_weights(of.kind)) return;
    kept[at].keep_pending();
    if (model::is_branch(of.kind)) values_[{normed, Phase::again}] = at::randn({tokens, 40});
    op.part = BackwardPart::weight;
    run(&StageCode::backward_weight, layers[at], kept[at], of, Mode::train, Phase::backward,
        schedule::tensors_of(op, model_), what + ", weight");
  }

  /// The exchange before an op of a stage.
  void arrive(const model::Stage& of, Phase phase) {
    const std::int64_t q = model_.held.heads * model_.held.head_dim, kv = model::gathered_width(model_.held);
    if (of.enter == model::Exchange::gather_keys)
      values_[{keys, phase == Phase::forward ? phase : Phase::again}] = at::randn({2 * tokens, kv});
    if (phase == Phase::forward && of.enter == model::Exchange::to_heads)
      values_[{projected, phase}] = at::randn({2 * tokens, (q + kv) / 2});
    if (phase == Phase::forward && of.enter == model::Exchange::to_tokens)
      values_[{attended, phase}] = at::randn({tokens, q});
    if (phase == Phase::backward && of.kind == StageKind::core_attention)
      values_[{attended, phase}] = at::randn({2 * tokens, q / 2});
    if (phase == Phase::backward && of.kind == StageKind::logits)
      values_[{vocabulary, Phase::forward}] = at::ones({tokens, 2});
    if (of.kind == StageKind::experts) {  // all rows are of the first of this rank's two experts
      const std::int64_t all = tokens * model_.sizes.decoder.experts->per_token;
      routing_.received = {0, all, all};
    }
  }
  /// The exchange behind it.
  void leave(const model::Stage& of, Phase phase) {
    const bool sums = of.leave == model::Exchange::all_reduce_activation;
    if (phase == Phase::forward && sums && !of.sum_is_normed) {
      at::Tensor& stream = values_.residual(phase);
      const at::Tensor sum = std::exchange(values_[{branch_output, phase}], at::Tensor());
      stream = stream.defined() ? stream + sum : sum;
    }
    if (phase == Phase::backward && of.kind == StageKind::core_attention)
      values_[{projected, phase}] =
          at::randn({tokens, (model_.held.heads + 2 * model_.held.kv_heads) * model_.held.head_dim});
    if (phase == Phase::backward) values_[{keys, phase}].reset();
    if (of.kind == StageKind::embedding || of.kind == StageKind::logits)
      values_.residual(phase) = at::randn({tokens, 40});
  }

  model::Model model_;
  Microbatch batch_;
  Values values_;
  Routing routing_;
  Losses losses_;
};

TEST(Frames, UseTheTensorsThatAreListedAndKeepThoseOfTheirTables) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.architecture);
    Blocks(c).check();
  }
}

}  // namespace
}  // namespace trireme::nn::frames_test
