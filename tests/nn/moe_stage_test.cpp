// SPDX-License-Identifier: Apache-2.0
// A layer of experts, written a second time as a loop over tokens in fp64 under autograd.
#include <ATen/ops/equal.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include "nn/reference.hpp"
#include "trireme/base/error.hpp"

namespace trireme::nn::moe_test {
namespace {

using model::StageKind;
using test::relative_error;

struct Reference {
  at::Tensor y;
  at::Tensor logits;  // [N, E]
  at::Tensor chosen;  // [N, k], the best first
};

Reference reference(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s,
                    const at::Tensor& bias) {
  const model::Experts& experts = *s.decoder.experts;
  const at::Tensor h = test::ref_norm(x, p[0], s.norm_eps);
  const at::Tensor logits = h.matmul(p[1].t());
  const bool sigmoid = experts.scores == model::RouterScores::sigmoid;
  const at::Tensor scores = sigmoid ? logits.sigmoid() : logits.softmax(-1);
  const at::Tensor chosen =
      std::get<1>(at::topk((experts.choice_bias ? scores + bias.to(at::kDouble) : scores).detach(), experts.per_token));
  const at::Tensor values = scores.gather(1, chosen);
  const std::size_t first = p.size() - static_cast<std::size_t>(3 * experts.count);
  const auto network = [&](const at::Tensor& x_t, std::size_t gate, std::size_t up, std::size_t down) {
    return p[down].matmul(at::silu(p[gate].matmul(x_t)) * p[up].matmul(x_t));
  };
  std::vector<at::Tensor> rows;
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const at::Tensor weights = experts.scale * (experts.normalized ? values[t] / values[t].sum() : values[t]);
    at::Tensor y = x[t];
    for (std::int64_t j = 0; j < experts.per_token; ++j) {
      const auto e = static_cast<std::size_t>(chosen[t][j].item<std::int64_t>());
      const std::size_t down = first + 2 * static_cast<std::size_t>(experts.count) + e;
      y = y + weights[j] * network(h[t], first + 2 * e, first + 2 * e + 1, down);
    }
    if (experts.shared != model::SharedExperts::none) {
      const at::Tensor shared = network(h[t], first - 3, first - 2, first - 1);
      y = y + (experts.shared == model::SharedExperts::gated ? p[first - 4].matmul(h[t]).sigmoid() * shared : shared);
    }
    rows.push_back(y.unsqueeze(0));
  }
  return {at::cat(rows), logits, chosen};
}

/// A stage with its parameters, and one training pass.
struct Training {
  model::Sizes sizes;
  bool accumulate = false;
  test::Flat f = test::flat(StageKind::moe, sizes, at::kFloat, accumulate);
  Microbatch m = test::microbatch(2, 21, sizes.vocab);
  at::Tensor x = at::randn({42, sizes.hidden}), d_y = at::randn({42, sizes.hidden});
  Result forward{}, backward{};

  void train(Mode mode = Mode::train) {
    const auto stage = make_stage(StageKind::moe, sizes, 21, DType::fp32, 0);
    Saved saved;
    forward = stage->forward(x, f.parameters, m, mode, saved);
    if (mode == Mode::decide) (void)stage->forward(x, f.parameters, m, Mode::rebuild, saved);
    backward = stage->backward(d_y, f.parameters, f.grads, m, std::move(saved));
  }

  void compare(const char* what) {
    const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
    const auto p64 = test::leaves(f.parameters);
    const Reference expected = reference(x64, p64, sizes, m.choice_bias);
    at::Tensor loss = (expected.y * d_y).sum();
    at::Tensor z = at::logsumexp(expected.logits, 1).pow(2).sum() * m.router_z_scale;
    (loss + z).backward();
    EXPECT_LT(relative_error(forward.hidden.to(at::kDouble) - x, expected.y - x64), 1e-5) << what;
    EXPECT_LT(relative_error(backward.hidden.to(at::kDouble) - d_y, x64.grad() - d_y), 1e-5) << what;
    EXPECT_NEAR(backward.router_z_loss, z.item<double>(), 1e-6 * std::abs(z.item<double>())) << what;
    for (std::size_t i = 0; i < p64.size(); ++i) {
      const at::Tensor grad = f.grads[i].tensor - (accumulate ? 1.0 : 0.0);
      const at::Tensor of = p64[i].grad();
      if (!of.defined() || of.abs().max().item<double>() == 0)
        EXPECT_EQ(grad.abs().max().item<float>(), 0) << what << ": expert without a token, parameter " << i;
      else
        EXPECT_LT(relative_error(grad, of), 2e-5) << what << ", parameter " << i;
    }
  }
};

TEST(MoeStage, AgreesWithALoopOverTokens) {
  for (const bool normalized : {false, true})
    for (const bool accumulate : {false, true}) {
      Training run{.sizes = test::expert_sizes(normalized), .accumulate = accumulate};
      run.m.router_z_scale = 0.003;
      run.train();
      run.compare(normalized ? "normalized" : "not normalized");
      EXPECT_EQ(std::accumulate(run.forward.expert_tokens.begin(), run.forward.expert_tokens.end(), std::int64_t{0}),
                42 * 3);
    }
}

/// DeepSeek-V3's router and shared experts; Qwen2-MoE's shared expert.
std::vector<model::Sizes> sizes_with_shared() {
  model::Sizes deepseek = test::expert_sizes(), qwen = test::expert_sizes(false);
  model::Experts& d = *deepseek.decoder.experts;
  d.scores = model::RouterScores::sigmoid;
  d.choice_bias = true;
  d.scale = 1.7;
  d.shared = model::SharedExperts::plain;
  d.shared_size = 20;
  qwen.decoder.experts->shared = model::SharedExperts::gated;
  qwen.decoder.experts->shared_size = 13;
  return {deepseek, qwen};
}

TEST(MoeStage, AgreesWithALoopOverTokensWhereExpertsAreShared) {
  for (const model::Sizes& sizes : sizes_with_shared())
    for (const bool accumulate : {false, true})
      for (const Mode mode : {Mode::train, Mode::train_keep_all, Mode::decide}) {
        Training run{.sizes = sizes, .accumulate = accumulate};
        run.m.router_z_scale = 0.003;
        if (sizes.decoder.experts->choice_bias) run.m.choice_bias = 0.3 * at::randn({7});
        run.train(mode);
        run.compare(sizes.decoder.experts->choice_bias ? "a bias" : "a gate");
      }
}

TEST(MoeStage, ComputesJointProductsOfParametersThatFollowEachOther) {
  Training run{.sizes = test::even_sizes()};
  run.sizes.decoder.experts = model::Experts{.count = 4, .per_token = 4, .size = 64};
  run.f = test::flat(StageKind::moe, run.sizes, at::kFloat, false);
  run.train();
  run.compare("every token to every expert");
}

TEST(MoeStage, LeavesZerosWhereExpertsHaveNoTokens) {
  for (const bool accumulate : {false, true}) {
    Training run{.sizes = test::expert_sizes(), .accumulate = accumulate};
    run.x = run.x.abs() + 0.1;
    run.f.parameters[0].fill_(1);  // the norm: positive inputs stay so
    run.f.parameters[1].fill_(-1);
    for (const std::int64_t e : {1, 4, 6}) run.f.parameters[1][e].fill_(0.01 * static_cast<double>(e));
    run.train();
    EXPECT_EQ(run.forward.expert_tokens, (std::vector<std::int64_t>{0, 42, 0, 0, 42, 0, 42}));
    run.compare("all tokens on three experts");
  }
}

TEST(MoeStage, HasTheSameBitsWhateverIsKept) {
  Training plain{.sizes = test::expert_sizes()};
  plain.train();
  for (const Mode mode : {Mode::train_keep_all, Mode::decide}) {
    Training other{.sizes = plain.sizes, .m = plain.m, .x = plain.x, .d_y = plain.d_y};
    for (std::size_t i = 0; i < other.f.parameters.size(); ++i) other.f.parameters[i].copy_(plain.f.parameters[i]);
    other.train(mode);
    EXPECT_TRUE(at::equal(other.forward.hidden, plain.forward.hidden));
    EXPECT_TRUE(at::equal(other.backward.hidden, plain.backward.hidden));
    for (std::size_t i = 0; i < other.f.grads.size(); ++i)
      EXPECT_TRUE(at::equal(other.f.grads[i].tensor, plain.f.grads[i].tensor)) << i;
  }
}

TEST(MoeStage, DoesNotDecideTwice) {
  Training run{.sizes = test::expert_sizes()};
  const auto stage = make_stage(StageKind::moe, run.sizes, 21, DType::fp32, 0);
  Saved saved;
  const Result first = stage->forward(run.x, run.f.parameters, run.m, Mode::decide, saved);
  ASSERT_EQ(saved.tensors.size(), 1U);
  const std::vector<Bytes> decides =
      model::saved_tensors(StageKind::moe, run.sizes, 42, DType::fp32, model::Keep::input);
  EXPECT_EQ(decides, (std::vector<Bytes>{{static_cast<std::int64_t>(saved.tensors[0].nbytes())}}));
  const at::Tensor decided = saved.tensors[0].clone();
  run.f.parameters[1].neg_();  // now it would choose others
  EXPECT_FALSE(stage->forward(run.x, run.f.parameters, run.m, Mode::rebuild, saved).hidden.defined());
  EXPECT_TRUE(at::equal(saved.tensors[3], decided));
  Saved none, lost;
  EXPECT_THROW((void)stage->forward(run.x, run.f.parameters, run.m, Mode::rebuild, lost), BugError);
  EXPECT_FALSE(at::equal(stage->forward(run.x, run.f.parameters, run.m, Mode::evaluate, none).hidden, first.hidden));
}

TEST(MoeStage, FollowsFp32InBf16) {
  Training run{.sizes = test::expert_sizes()};
  run.train();
  test::Flat f = test::flat(StageKind::moe, run.sizes, at::kBFloat16, false);
  for (std::size_t i = 0; i < f.parameters.size(); ++i) f.parameters[i].copy_(run.f.parameters[i]);
  const auto stage = make_stage(StageKind::moe, run.sizes, 21, DType::bf16, 0);
  Saved saved;
  const at::Tensor x = run.x.to(at::kBFloat16);
  const Result forward = stage->forward(x, f.parameters, run.m, Mode::train, saved);
  const Result backward = stage->backward(run.d_y.to(at::kBFloat16), f.parameters, f.grads, run.m, std::move(saved));
  // A token whose experts are nearly equal may have others.
  EXPECT_LT(relative_error(forward.hidden.to(at::kDouble), run.forward.hidden.to(at::kDouble)), 5e-2);
  EXPECT_LT(relative_error(backward.hidden.to(at::kDouble), run.backward.hidden.to(at::kDouble)), 5e-2);
}

}  // namespace
}  // namespace trireme::nn::moe_test
