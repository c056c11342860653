// SPDX-License-Identifier: Apache-2.0
// GPT-2's stages against libtorch's own operators under autograd, in fp64.
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <gtest/gtest.h>

#include "nn/reference.hpp"

namespace trireme::nn {
namespace {

using model::StageKind;
using test::relative_error;
using Tensors = std::vector<at::Tensor>;

at::Tensor norm(const at::Tensor& x, const Tensors& p) {
  return at::layer_norm(x, {x.size(1)}, p[0], p[1], test::gpt2_sizes().norm_eps);
}

at::Tensor expected(StageKind kind, const at::Tensor& x, const Tensors& p, const Microbatch& m) {
  const model::Sizes s = test::gpt2_sizes();
  if (kind == StageKind::positions) return x + p[0].slice(0, 0, m.seq_len).repeat({m.batch, 1});
  const at::Tensor h = norm(x, p);
  if (kind == StageKind::mlp) return x + at::gelu(h.matmul(p[2].t()) + p[3], "tanh").matmul(p[4].t()) + p[5];
  const at::Tensor qkv = h.matmul(p[2].t()) + p[3];
  const auto heads = [&](std::int64_t part) {
    return qkv.slice(1, part * s.hidden, (part + 1) * s.hidden)
        .reshape({m.batch, m.seq_len, s.heads, s.head_dim})
        .transpose(1, 2);
  };
  const at::Tensor later = at::ones({m.seq_len, m.seq_len}, at::kBool).triu(1);
  const at::Tensor scores = heads(0).matmul(heads(1).transpose(2, 3)) / std::sqrt(static_cast<double>(s.head_dim));
  const at::Tensor mixed = scores.masked_fill(later, -INFINITY).softmax(-1).matmul(heads(2));
  return x + mixed.transpose(1, 2).reshape({x.size(0), s.hidden}).matmul(p[4].t()) + p[5];
}

struct Call {
  Tensors parameters;
  std::vector<Grad> grads;

  explicit Call(StageKind kind, bool accumulate) {
    for (const auto& shape : test::shapes_of(kind, test::gpt2_sizes())) {
      parameters.push_back(0.3 * at::randn(shape));
      grads.push_back({at::full(shape, accumulate ? 1.0 : std::numeric_limits<double>::quiet_NaN()), accumulate});
    }
    if (kind != StageKind::positions) parameters[0].add_(1);
  }

  void compare(const Tensors& p64) const {
    for (std::size_t i = 0; i < p64.size(); ++i)
      EXPECT_LT(relative_error(grads[i].tensor - (grads[i].accumulate ? 1.0 : 0.0), p64[i].grad()), 1e-5)
          << "parameter " << i;
  }
};

class Gpt2Stage : public testing::TestWithParam<std::tuple<StageKind, bool, Mode>> {};

TEST_P(Gpt2Stage, AgreesWithAutograd) {
  const auto [kind, accumulate, mode] = GetParam();
  const Microbatch m = test::microbatch(2, 21, test::gpt2_sizes().vocab);
  Call run(kind, accumulate);
  const at::Tensor x = at::randn({42, test::gpt2_sizes().hidden});
  const at::Tensor d_y = at::randn({42, test::gpt2_sizes().hidden});
  const auto stage = make_stage(kind, test::gpt2_sizes(), 21, DType::fp32, 0);
  Saved saved;
  const at::Tensor y = stage->forward(x, run.parameters, m, mode, saved).hidden;
  const Result result = stage->backward(d_y, run.parameters, run.grads, m, std::move(saved));

  const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
  const Tensors p64 = test::leaves(run.parameters);
  const at::Tensor wanted = expected(kind, x64, p64, m);
  wanted.backward(d_y.to(at::kDouble));
  EXPECT_LT(relative_error(y.to(at::kDouble) - x, wanted - x), 2e-6);
  EXPECT_LT(relative_error(result.hidden, x64.grad()), 1e-5);
  run.compare(p64);
}

TEST_P(Gpt2Stage, SavesTheBytesThatThePlannerCounts) {
  const auto [kind, accumulate, mode] = GetParam();
  const Microbatch m = test::microbatch(2, 21, test::gpt2_sizes().vocab);
  Saved saved;
  (void)make_stage(kind, test::gpt2_sizes(), 21, DType::fp32, 0)
      ->forward(at::randn({42, test::gpt2_sizes().hidden}), Call(kind, accumulate).parameters, m, mode, saved);
  const auto keep = mode == Mode::train ? model::Keep::products : model::Keep::all;
  const auto bytes = model::saved_tensors(kind, test::gpt2_sizes(), 42, DType::fp32, keep);
  ASSERT_EQ(saved.tensors.size(), bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(static_cast<std::int64_t>(saved.tensors[i].nbytes()), bytes[i].value) << i;
}

INSTANTIATE_TEST_SUITE_P(, Gpt2Stage,
                         testing::Combine(testing::Values(StageKind::attention, StageKind::mlp, StageKind::positions),
                                          testing::Bool(), testing::Values(Mode::train, Mode::train_keep_all)));

TEST(Gpt2Head, AgreesWithAutograd) {
  const Microbatch m = test::microbatch(3, 11, test::gpt2_sizes().vocab);
  Call run(StageKind::head, false);
  const at::Tensor x = at::randn({33, test::gpt2_sizes().hidden});
  const auto stage = make_stage(StageKind::head, test::gpt2_sizes(), 11, DType::fp32, 7);
  Saved saved;
  (void)stage->forward(x, run.parameters, m, Mode::train, saved);
  const Result result = stage->backward({}, run.parameters, run.grads, m, std::move(saved));
  const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
  const Tensors p64 = test::leaves(run.parameters);
  const at::Tensor loss =
      at::cross_entropy_loss(norm(x64, p64).matmul(p64[2].t()), m.targets.to(at::kLong), {}, /*reduction=sum*/ 2, -1);
  (loss * m.loss_scale).backward();
  EXPECT_NEAR(result.loss.cross_entropy / loss.item<double>(), 1.0, 1e-6);
  EXPECT_LT(relative_error(result.hidden, x64.grad()), 1e-5);
  run.compare(p64);
}

}  // namespace
}  // namespace trireme::nn
