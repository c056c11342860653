// SPDX-License-Identifier: Apache-2.0
// Scaling of the embedding and the logits in Gemma and Granite, in fp64 under autograd.
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include "nn/reference.hpp"

namespace trireme::nn::scales_test {
namespace {

using model::StageKind;
using test::relative_error;

at::Tensor scaled_logits(const at::Tensor& x, const std::vector<at::Tensor>& p, const model::Sizes& s) {
  const at::Tensor weight = s.decoder.norm == model::NormKind::rms_plus_one ? p[0] + 1 : p[0];
  const at::Tensor logits = test::ref_norm(x, weight, s.norm_eps).matmul(p[1].t()) / s.decoder.logit_divisor;
  const double cap = s.decoder.logit_softcap;
  return cap > 0 ? at::tanh(logits / cap) * cap : logits;
}

model::Sizes sizes_with(const model::Decoder& decoder) {
  model::Sizes sizes = test::odd_sizes();
  sizes.decoder = decoder;
  return sizes;
}

TEST(HeadScales, AgreeWithAutogradForAnyChunk) {
  for (const model::Decoder& decoder :
       {model::Decoder{.norm = model::NormKind::rms_plus_one, .logit_softcap = 0.8},
        model::Decoder{.logit_divisor = 0.3}, model::Decoder{.logit_softcap = 2, .logit_divisor = 4}})
    for (const std::int64_t chunk : {0, 5, 42}) {
      const model::Sizes sizes = sizes_with(decoder);
      Microbatch m = test::microbatch(2, 21, sizes.vocab);
      m.z_loss = 1e-2;
      test::Flat f = test::flat(StageKind::head, sizes, at::kFloat, chunk == 5);
      const at::Tensor x = at::randn({42, sizes.hidden});
      const auto head = make_stage(StageKind::head, sizes, 32, DType::fp32, chunk);
      Saved saved;
      (void)head->forward(x, f.parameters, m, Mode::train, saved);
      const Result result = head->backward({}, f.parameters, f.grads, m, std::move(saved));

      const at::Tensor x64 = x.to(at::kDouble).requires_grad_();
      const auto p64 = test::leaves(f.parameters);
      const at::Tensor logits = scaled_logits(x64, p64, sizes);
      const at::Tensor cross_entropy = at::cross_entropy_loss(logits, m.targets.to(at::kLong), {}, /*sum*/ 2, -1);
      const at::Tensor z_loss = m.z_loss * (at::logsumexp(logits, 1).pow(2) * (m.targets >= 0)).sum();
      ((cross_entropy + z_loss) * m.loss_scale).backward();
      EXPECT_NEAR(result.loss.cross_entropy / cross_entropy.item<double>(), 1, 1e-6);
      EXPECT_NEAR(result.loss.z_loss / z_loss.item<double>(), 1, 1e-6);
      EXPECT_LT(relative_error(result.hidden, x64.grad()), 5e-5);
      for (std::size_t i = 0; i < p64.size(); ++i)
        EXPECT_LT(relative_error(f.grads[i].tensor - (chunk == 5 ? 1.0 : 0.0), p64[i].grad()), 5e-5) << i;

      Saved none;
      EXPECT_NEAR(head->forward(x, f.parameters, m, Mode::evaluate, none).loss.cross_entropy, result.loss.cross_entropy,
                  1e-4);
      const at::Tensor last = head->forward(x, f.parameters, m, Mode::infer, none).hidden;
      EXPECT_LT(relative_error(last, logits.detach().view({2, 21, -1}).select(1, 20)), 1e-5);
    }
}

TEST(EmbeddingScales, AreOfTheLookupAndOfItsGradient) {
  for (const auto& [decoder, fp32, bf16] : {std::tuple{model::Decoder{.embedding_root = true}, std::sqrt(36.0), 6.0},
                                            std::tuple{model::Decoder{.embedding_scale = 3.0}, 3.0, 3.0},
                                            std::tuple{model::Decoder{.embedding_scale = 1.0}, 1.0, 1.0}})
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const model::Sizes sizes = sizes_with(decoder);
      const double scale = type == at::kFloat ? fp32 : bf16;
      const Microbatch m = test::microbatch(2, 21, sizes.vocab);
      test::Flat f = test::flat(StageKind::embedding, sizes, type, false);
      const auto stage = make_stage(StageKind::embedding, sizes, 32, DType::fp32, 0);
      Saved saved;
      const at::Tensor y = stage->forward({}, f.parameters, m, Mode::train, saved).hidden;
      const at::Tensor rows = f.parameters[0].index_select(0, m.inputs.to(at::kLong));
      EXPECT_LT(relative_error(y, rows.to(at::kDouble) * scale), type == at::kFloat ? 1e-7 : 4e-3);
      const at::Tensor d_y = at::randn({42, sizes.hidden}).to(type), kept = d_y.clone();
      (void)stage->backward(d_y, f.parameters, f.grads, m, {});
      EXPECT_LT(relative_error(f.grads[0].tensor.sum(0), kept.to(at::kDouble).sum(0) * scale),
                type == at::kFloat ? 1e-5 : 1e-2);
      EXPECT_TRUE(test::same_bits(d_y, kept)) << "others read the stream's gradient too";
    }
}

TEST(EmbeddingScales, OfGemmaAreRoundedToTheComputeType) {
  const auto first = [](const model::Decoder& decoder) {
    model::Sizes sizes = sizes_with(decoder);
    sizes.hidden = 640;  // its root is 25.298, 25.25 in bf16
    const Microbatch m = test::microbatch(1, 3, sizes.vocab);
    test::Flat f = test::flat(StageKind::embedding, sizes, at::kBFloat16, false);
    f.parameters[0].fill_(1.25);
    Saved saved;
    return make_stage(StageKind::embedding, sizes, 32, DType::bf16, 0)
        ->forward({}, f.parameters, m, Mode::train, saved)
        .hidden[0][0]
        .item<float>();
  };
  EXPECT_EQ(first({.embedding_root = true}), 31.5F) << "1.25 x 25.25 = 31.5625, a tie";
}

}  // namespace
}  // namespace trireme::nn::scales_test
