// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "nn/reference.hpp"

namespace trireme::nn {
namespace {

using model::StageKind;
using test::relative_error;

struct Tolerance {
  double forward, gradient;
};
constexpr Tolerance fp32{.forward = 1e-6, .gradient = 1e-5};
constexpr Tolerance bf16{.forward = 1e-2, .gradient = 5e-2};

at::ScalarType type_of(DType compute) { return compute == DType::fp32 ? at::kFloat : at::kBFloat16; }

at::Tensor reference(StageKind kind, const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s,
                     const Microbatch& m) {
  return kind == StageKind::attention ? test::ref_attention(x, p, s, m) : test::ref_mlp(x, p, s);
}

/// Runs forward, poisons the parameters as a freed ring slot would be, restores them, runs backward: as training does.
Result train(const WholeStage& stage, const at::Tensor& x, const at::Tensor& d_y, test::Flat& f, const Microbatch& m,
             at::Tensor* y) {
  Saved saved;
  const Result forward = stage.forward(x, f.parameters, m, Mode::train, saved);
  if (y != nullptr) *y = forward.hidden;
  const at::Tensor kept = f.buffer.clone();
  f.buffer.fill_(NAN);
  f.buffer.copy_(kept);
  return stage.backward(d_y, f.parameters, f.grads, m, std::move(saved));
}

void compare_gradients(const test::Flat& f, const std::vector<at::Tensor>& expected, double tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& grad = expected[i].grad();
    EXPECT_LT(relative_error(f.grads[i].tensor - (f.grads[i].accumulate ? 1.0 : 0.0), grad), tolerance)
        << "parameter " << i;
  }
}

void compare_block_stage(StageKind kind, const model::Sizes& sizes, DType compute, bool accumulate,
                         Tolerance tolerance) {
  const Microbatch m = test::microbatch(2, 21, sizes.vocab);
  test::Flat f = test::flat(kind, sizes, type_of(compute), accumulate);
  const at::Tensor x = at::randn({42, sizes.hidden}).to(type_of(compute));
  const at::Tensor d_y = at::randn({42, sizes.hidden}).to(type_of(compute));
  const auto stage = make_stage(kind, sizes, 32, compute, 0);
  at::Tensor y;
  const Result result = train(*stage, x, d_y, f, m, &y);

  const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
  const auto p64 = test::leaves(f.parameters);
  const at::Tensor expected = reference(kind, x64, p64, sizes, m);
  expected.backward(d_y.to(at::kDouble));
  // The residual must not hide the stage's own part.
  EXPECT_LT(relative_error(y.to(at::kDouble) - x, expected - x), tolerance.forward * 2);
  EXPECT_LT(relative_error(result.hidden.to(at::kDouble) - d_y, x64.grad() - d_y), tolerance.gradient);
  compare_gradients(f, p64, tolerance.gradient);
}

void compare_head(const model::Sizes& sizes, DType compute, bool accumulate, std::int64_t chunk, Tolerance tolerance) {
  Microbatch m = test::microbatch(3, 11, sizes.vocab);
  m.z_loss = 0.05;
  test::Flat f = test::flat(StageKind::head, sizes, type_of(compute), accumulate);
  const at::Tensor x = at::randn({33, sizes.hidden}).to(type_of(compute));
  const auto stage = make_stage(StageKind::head, sizes, 32, compute, chunk);
  const Result result = train(*stage, x, {}, f, m, nullptr);

  const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
  const auto p64 = test::leaves(f.parameters);
  const at::Tensor loss = test::ref_head(x64, p64, sizes, m), z_loss = test::ref_z_loss(x64, p64, sizes, m);
  ((loss + z_loss) * m.loss_scale).backward();
  EXPECT_NEAR(result.loss.cross_entropy / loss.item<double>(), 1.0, tolerance.forward);
  EXPECT_NEAR(result.loss.z_loss / z_loss.item<double>(), 1.0, tolerance.forward);
  EXPECT_LT(relative_error(result.hidden, x64.grad()), tolerance.gradient);
  compare_gradients(f, p64, tolerance.gradient);

  Saved none;
  const kernels::LossSums evaluated = stage->forward(x, f.parameters, m, Mode::evaluate, none).loss;
  EXPECT_NEAR(evaluated.cross_entropy / loss.item<double>(), 1.0, tolerance.forward);
  EXPECT_EQ(evaluated.z_loss, 0.0);
  EXPECT_TRUE(none.tensors.empty());
}

void compare_embedding(DType compute, bool accumulate) {
  const auto sizes = test::odd_sizes();
  const Microbatch m = test::microbatch(2, 40, 17);
  test::Flat f = test::flat(StageKind::embedding, sizes, type_of(compute), accumulate);
  const at::Tensor d_y = at::randn({80, sizes.hidden}).to(type_of(compute));
  const auto stage = make_stage(StageKind::embedding, sizes, 64, compute, 0);
  at::Tensor y;
  const Result result = train(*stage, {}, d_y, f, m, &y);
  const auto p64 = test::leaves(f.parameters);
  const at::Tensor expected = p64[0].index_select(0, m.inputs);
  expected.backward(d_y.to(at::kDouble));
  EXPECT_FALSE(result.hidden.defined());
  EXPECT_EQ(relative_error(y, expected), 0.0);
  compare_gradients(f, p64, 1e-6);
}

TEST(AttentionStage, AgreesWithAutograd) {
  for (const auto& sizes : {test::odd_sizes(), test::even_sizes()}) {
    for (const bool accumulate : {false, true})
      compare_block_stage(StageKind::attention, sizes, DType::fp32, accumulate, fp32);
  }
}

TEST(AttentionStage, InBf16FollowsFp64) {
  compare_block_stage(StageKind::attention, test::odd_sizes(), DType::bf16, true, bf16);
}

TEST(MlpStage, AgreesWithAutograd) {
  for (const auto& sizes : {test::odd_sizes(), test::even_sizes()}) {
    for (const bool accumulate : {false, true})
      compare_block_stage(StageKind::mlp, sizes, DType::fp32, accumulate, fp32);
  }
}

TEST(MlpStage, InBf16FollowsFp64) { compare_block_stage(StageKind::mlp, test::odd_sizes(), DType::bf16, false, bf16); }

TEST(HeadStage, AgreesWithAutogradForAnyChunk) {
  for (const std::int64_t chunk : {0, 1, 5, 33, 100}) {
    for (const bool accumulate : {false, true}) compare_head(test::odd_sizes(), DType::fp32, accumulate, chunk, fp32);
  }
}

TEST(HeadStage, InBf16FollowsFp64) { compare_head(test::even_sizes(), DType::bf16, true, 10, bf16); }

TEST(EmbeddingStage, AgreesWithAutograd) {
  for (const auto compute : {DType::fp32, DType::bf16}) {
    for (const bool accumulate : {false, true}) compare_embedding(compute, accumulate);
  }
}

TEST(HeadStage, WithTiedEmbeddingsAddsToTheEmbeddingsGradient) {
  const auto sizes = test::odd_sizes();
  const Microbatch m = test::microbatch(2, 13, sizes.vocab);
  test::Flat table = test::flat(StageKind::embedding, sizes, at::kFloat, false);
  test::Flat norm = test::flat(StageKind::head, sizes, at::kFloat, false);
  const std::vector<at::Tensor> head_parameters{norm.parameters[0], table.parameters[0]};
  const std::vector<Grad> head_grads{norm.grads[0], table.grads[0]};
  const auto embedding = make_stage(StageKind::embedding, sizes, 16, DType::fp32, 0);
  const auto head = make_stage(StageKind::head, sizes, 16, DType::fp32, 7);
  Saved nothing, saved;
  const at::Tensor hidden = embedding->forward({}, table.parameters, m, Mode::train, nothing).hidden;
  (void)head->forward(hidden, head_parameters, m, Mode::train, saved);
  const Result d = head->backward({}, head_parameters, head_grads, m, std::move(saved));
  const std::vector<Grad> second{{.tensor = table.grads[0].tensor, .accumulate = true}};
  (void)embedding->backward(d.hidden, table.parameters, second, m, {});

  const auto p64 = test::leaves(head_parameters);
  (test::ref_head(p64[1].index_select(0, m.inputs), p64, sizes, m) * m.loss_scale).backward();
  EXPECT_LT(relative_error(table.grads[0].tensor, p64[1].grad()), 1e-5);
}

TEST(HeadStage, InInferModeGivesTheLogitsOfTheLastPositions) {
  const auto sizes = test::odd_sizes();
  for (const auto compute : {DType::fp32, DType::bf16}) {
    Microbatch m = test::microbatch(3, 6, sizes.vocab);
    m.targets = at::Tensor();
    const test::Flat f = test::flat(StageKind::head, sizes, type_of(compute), false);
    const at::Tensor x = at::randn({18, sizes.hidden}).to(type_of(compute));
    Saved none;
    const Result result =
        make_stage(StageKind::head, sizes, 6, compute, 0)->forward(x, f.parameters, m, Mode::infer, none);
    const at::Tensor expected =
        test::ref_logits(x.to(at::kDouble), test::leaves(f.parameters), sizes).view({3, 6, sizes.vocab}).select(1, 5);
    EXPECT_EQ(result.hidden.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(result.hidden, expected), compute == DType::fp32 ? 1e-6 : 1e-2);
    EXPECT_TRUE(none.tensors.empty());
  }
}

}  // namespace
}  // namespace trireme::nn
