// SPDX-License-Identifier: Apache-2.0
// The backward of layers in two parts: the bits of the whole one, what waits between them as planned, and weights'
// gradients that read no parameter.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "nn/reference.hpp"

namespace trireme::nn::split_backward_test {
namespace {

using model::StageKind;

/// Mixtures without shared experts, with those of DeepSeek-V3 and with that of Qwen2-MoE.
std::vector<model::Sizes> mixtures() {
  model::Sizes deepseek = test::expert_sizes(), qwen = test::expert_sizes(false);
  deepseek.decoder.experts->scores = model::RouterScores::sigmoid;
  deepseek.decoder.experts->choice_bias = true;
  deepseek.decoder.experts->shared = model::SharedExperts::plain;
  qwen.decoder.experts->shared = model::SharedExperts::gated;
  deepseek.decoder.experts->shared_size = qwen.decoder.experts->shared_size = 13;
  return {test::expert_sizes(), deepseek, qwen};
}

/// A decoder of each make: norms before, after and around branches, of queries and keys, with biases; GPT-2's.
std::vector<model::Sizes> decoders() {
  std::vector<model::Sizes> all{test::odd_sizes(), test::gpt2_sizes(), test::latent_sizes(8, 7),
                                test::latent_sizes(0, 12)};
  for (const model::Decoder& decoder : std::initializer_list<model::Decoder>{
           {.qk_norm = model::QkNorm::head, .qkv_bias = true, .o_bias = true, .mlp_bias = true},
           {.pre_norm = false, .post_norm = true, .qk_norm = model::QkNorm::width},
           {.norm = model::NormKind::rms_plus_one,
           .activation = model::Activation::geglu_tanh,
           .post_norm = true,
           .residual_scale = 0.3}}) {
    all.push_back(test::odd_sizes());
    all.back().decoder = decoder;
  }
  return all;
}

Bytes sum_of(const std::vector<Bytes>& all) {
  Bytes sum;
  for (const Bytes bytes : all) sum += bytes;
  return sum;
}

void expect_same_bits(const model::Sizes& sizes, std::initializer_list<StageKind> kinds) {
  for (const StageKind kind : kinds)
    for (const bool all : {false, true})
      for (const bool accumulate : {false, true}) {
        const test::Flat f = test::flat(kind, sizes, at::kFloat, accumulate);
        Microbatch m = test::microbatch(2, 9, sizes.vocab);
        m.balance_scale = m.router_z_scale = 0.01;
        if (kind == StageKind::moe && sizes.decoder.experts->choice_bias)
          m.choice_bias = at::randn({sizes.decoder.experts->count});
        const auto stage = make_stage(kind, sizes, 9, DType::fp32, 0);
        Saved saved;
        (void)stage->forward(at::randn({18, sizes.hidden}), f.parameters, m, all ? Mode::train_keep_all : Mode::train,
                             saved);
        std::set<const void*> before;
        for (const at::Tensor& tensor : saved.tensors) before.insert(tensor.storage().data());
        const at::Tensor d = at::randn({18, sizes.hidden}), first_gradients = f.grad_buffer.clone();
        Saved waits = saved;
        const at::Tensor whole = stage->backward(d.clone(), f.parameters, f.grads, m, saved).hidden;
        const at::Tensor gradients = f.grad_buffer.clone();
        f.grad_buffer.copy_(first_gradients);
        const at::Tensor input = stage->backward_input(d.clone(), f.parameters, m, waits).hidden;
        EXPECT_TRUE(test::same_bits(f.grad_buffer, first_gradients)) << "weights wait";
        const model::Pending planned =
            model::pending_tensors(kind, sizes, 18, DType::fp32, all ? model::Keep::all : model::Keep::products);
        std::int64_t bytes = 0, fresh = 0;
        for (const at::Tensor& tensor : waits.tensors) {
          const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
          bytes += size;
          if (!before.contains(tensor.storage().data())) fresh += size;
        }
        EXPECT_EQ(Bytes{bytes}, sum_of(planned.tensors)) << static_cast<int>(kind) << all;
        EXPECT_EQ(Bytes{fresh}, planned.fresh) << static_cast<int>(kind) << all;
        f.buffer.fill_(std::numeric_limits<double>::quiet_NaN());
        stage->backward_weight(f.grads, waits);
        EXPECT_TRUE(test::same_bits(input, whole));
        EXPECT_TRUE(test::same_bits(f.grad_buffer, gradients));
      }
}

TEST(SplitBackward, GivesTheBitsOfTheWholeOneAndReadsNoParametersForWeights) {
  for (const model::Sizes& sizes : decoders()) expect_same_bits(sizes, {StageKind::attention, StageKind::mlp});
}

TEST(SplitBackward, OfExpertsGivesTheBitsOfTheWholeOne) {
  for (const model::Sizes& sizes : mixtures()) expect_same_bits(sizes, {StageKind::moe});
}

TEST(SplitBackward, OfDividedExpertsLeavesWhatIsPlannedAndReadsNoParametersForWeights) {
  using enum model::TensorId;
  using schedule::Phase;
  const model::Model model{.sizes = test::expert_sizes(), .held = test::expert_sizes()};
  const model::Experts& experts = *model.sizes.decoder.experts;
  const model::Stage stage{.name = {},
                           .kind = StageKind::experts,
                           .parameters = {},
                           .enter = model::Exchange::dispatch,
                           .leave = model::Exchange::combine};
  const test::Flat f = test::flat(StageKind::moe, model.sizes, at::kFloat, false);
  const auto first = static_cast<std::ptrdiff_t>(f.parameters.size()) - 3 * experts.count;
  const std::vector<at::Tensor> parameters(f.parameters.begin() + first, f.parameters.end());
  const std::vector<Grad> grads(f.grads.begin() + first, f.grads.end());
  std::vector<std::int64_t> begin(static_cast<std::size_t>(experts.count) + 1, 10);  // all rows are of expert 1
  begin[0] = begin[1] = 0;
  const Microbatch m;
  for (const bool all : {false, true}) {
    ShardedCall call(model, stage);
    call.routing.received = begin;
    const auto rows = [](Phase phase) {
      return schedule::TensorSet(phase, {permuted_tokens, permuted_probs, expert_output});
    };
    call[{permuted_tokens, Phase::forward}] = at::randn({10, model.sizes.hidden});
    call[{permuted_probs, Phase::forward}] = at::rand({10});
    call.run(&StageCode::forward, parameters, {}, m, all ? Mode::train_keep_all : Mode::train, Phase::forward,
             rows(Phase::forward));
    const model::Keep keep = all ? model::Keep::all : model::Keep::products;
    call.kept.put_saved(call.kept.take_saved(keep), keep);
    call[{expert_output, Phase::backward}] = at::randn({10, model.sizes.hidden});
    call.run(&StageCode::backward_input, parameters, {}, m, Mode::train, Phase::backward, rows(Phase::backward));
    const std::vector<at::Tensor> waits = call.kept.take_pending();
    Bytes bytes;
    for (const at::Tensor& tensor : waits) bytes += Bytes{static_cast<std::int64_t>(tensor.nbytes())};
    EXPECT_EQ(bytes, sum_of(model::pending_tensors(StageKind::experts, model.sizes, 10, DType::fp32, keep).tensors));
    f.grad_buffer.fill_(std::numeric_limits<double>::quiet_NaN());
    call.kept.put_pending(waits);
    call.run(&StageCode::backward_weight, {}, grads, m, Mode::train, Phase::backward, {});
    for (const Grad& grad : grads) EXPECT_FALSE(grad.tensor.isnan().any().item<bool>()) << "experts without rows, too";
    EXPECT_EQ(grads[0].tensor.abs().max().item<float>(), 0) << "expert 0 has none";
    EXPECT_GT(grads[2].tensor.abs().max().item<float>(), 0);
  }
}

}  // namespace
}  // namespace trireme::nn::split_backward_test
