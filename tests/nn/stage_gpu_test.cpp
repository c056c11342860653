// SPDX-License-Identifier: Apache-2.0
// Every stage on a GPU against the same stage on the host: forward, backward, loss.
#include <ATen/ops/full_like.h>
#include <gtest/gtest.h>

#include "nn/reference.hpp"
#include "support/gpu.hpp"
#include "trireme/kernels/attention_library.hpp"

namespace trireme::nn {
namespace {

using model::StageKind;
using test::relative_error;
using test::to_kernels;
using Tensors = std::vector<at::Tensor>;

model::Sizes llama(std::int64_t head_dim) {
  model::Sizes s = test::odd_sizes();
  s.head_dim = head_dim;
  return s;
}

/// Outputs of a stage, on the host.
struct Output {
  at::Tensor y, d_x;
  Tensors grads;
  double loss;
};

struct Input {
  StageKind kind;
  model::Sizes sizes;
  at::ScalarType type;
  Mode mode;
  Microbatch microbatch;
  at::Tensor x, d_y;
  Tensors parameters;

  Input(StageKind stage, const model::Sizes& s, at::ScalarType t, Mode m)
      : kind(stage), sizes(s), type(t), mode(m), microbatch(test::microbatch(2, 21, s.vocab)) {
    x = at::randn({42, s.hidden}).to(t);
    d_y = at::randn({42, s.hidden}).to(t);
    for (const auto& shape : test::shapes_of(kind, s))
      parameters.push_back(((shape.size() == 1 ? 1.0 : 0.0) + 0.3 * at::randn(shape)).to(t));
  }
};

Output run(const Input& in, bool gpu) {
  const auto place = [&](const at::Tensor& t) { return gpu ? to_kernels(t) : t.clone(); };
  const auto stage = make_stage(in.kind, in.sizes, 23, DType::fp32, 17, gpu ? at::kCUDA : at::kCPU);
  Microbatch m = in.microbatch;
  m.inputs = place(m.inputs);
  m.targets = place(m.targets);
  Tensors parameters;
  std::vector<Grad> grads;
  for (const at::Tensor& p : in.parameters) {
    parameters.push_back(place(p));
    grads.push_back({.tensor = place(at::full(p.sizes(), 1.0, at::kFloat)), .accumulate = true});
  }
  Saved saved;
  const Result forward =
      stage->forward(in.kind == StageKind::embedding ? at::Tensor() : place(in.x), parameters, m, in.mode, saved);
  const Result backward = stage->backward(in.kind == StageKind::head ? at::Tensor() : place(in.d_y), parameters, grads,
                                          m, std::move(saved));
  const auto back = [](const at::Tensor& t) { return t.defined() ? t.cpu() : t; };
  Output out{.y = back(forward.hidden),
             .d_x = back(backward.hidden),
             .grads = {},
             .loss = backward.loss.cross_entropy + backward.loss.z_loss};
  if (backward.device_loss.defined()) out.loss += backward.device_loss.sum().item<double>();
  for (const Grad& grad : grads) out.grads.push_back(grad.tensor.cpu());
  return out;
}

void compare(const Input& in) {
  const Output gpu = run(in, true), host = run(in, false);
  const double tolerance = in.type == at::kFloat ? 1e-5 : 3e-2;
  for (const auto& [there, here] : {std::pair{gpu.y, host.y}, {gpu.d_x, host.d_x}}) {
    if (!here.defined()) continue;
    EXPECT_LT(relative_error(there, here), tolerance);
  }
  for (std::size_t i = 0; i < host.grads.size(); ++i)
    EXPECT_LT(relative_error(gpu.grads[i] - 1, host.grads[i] - 1), tolerance) << "parameter " << i;
  EXPECT_NEAR(gpu.loss, host.loss, tolerance * std::abs(host.loss));
}

class StageOnGpu : public test::GpuTest {};

TEST_F(StageOnGpu, LlamaFollowsTheHost) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto mode : {Mode::train, Mode::train_keep_all})
      for (const auto kind : {StageKind::embedding, StageKind::attention, StageKind::mlp, StageKind::head})
        for (const std::int64_t head_dim : {10, 32}) compare(Input(kind, llama(head_dim), type, mode));
}

TEST_F(StageOnGpu, Gpt2FollowsTheHost) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto kind :
         {StageKind::embedding, StageKind::positions, StageKind::attention, StageKind::mlp, StageKind::head})
      compare(Input(kind, test::gpt2_sizes(), type, Mode::train));
}

/// Libraries that are not dense: their gradients are rotated back on the way into those of the projection.
TEST_F(StageOnGpu, AttentionByLibrariesFollowsTheHost) {
  std::vector<model::Sizes> models{llama(32), llama(16), llama(32), llama(32), llama(64), test::gpt2_sizes()};
  models[1].decoder.adjacent_pairs = true;
  models[2].decoder.rotary_part = 0.5;
  models[2].decoder.adjacent_pairs = true;
  models[3].decoder.rotary_part = 0.25;
  models[4].decoder.qk_norm = model::QkNorm::head;
  models[5].head_dim = 8;
  const kernels::AttentionLibrary usual = kernels::attention_library();
  for (const auto library : {kernels::AttentionLibrary::flash, kernels::AttentionLibrary::cudnn})
    for (std::size_t i = 0; i < models.size(); ++i) {
      SCOPED_TRACE(testing::Message() << kernels::to_text(library) << ", model " << i);
      const Input in(StageKind::attention, models[i], at::kBFloat16, Mode::train);
      kernels::set_attention_library(library);
      compare(in);
      kernels::set_attention_library(usual);
    }
}

TEST_F(StageOnGpu, EvaluatesAndInfersAsTheHostDoes) {
  const Input in(StageKind::head, llama(10), at::kFloat, Mode::evaluate);
  Microbatch there = in.microbatch;
  there.inputs = to_kernels(there.inputs);
  there.targets = to_kernels(there.targets);
  Tensors parameters;
  for (const at::Tensor& p : in.parameters) parameters.push_back(to_kernels(p));
  Saved none;
  const auto host = make_stage(in.kind, in.sizes, 23, DType::fp32, 17);
  const auto gpu = make_stage(in.kind, in.sizes, 23, DType::fp32, 17, at::kCUDA);
  const double loss = host->forward(in.x, in.parameters, in.microbatch, Mode::evaluate, none).loss.cross_entropy;
  const Result result = gpu->forward(to_kernels(in.x), parameters, there, Mode::evaluate, none);
  EXPECT_NEAR(result.device_loss[0].item<double>(), loss, 1e-6 * loss);
  EXPECT_EQ(result.device_loss[1].item<double>(), 0.0);
  EXPECT_LT(relative_error(gpu->forward(to_kernels(in.x), parameters, there, Mode::infer, none).hidden.cpu(),
                           host->forward(in.x, in.parameters, in.microbatch, Mode::infer, none).hidden),
            1e-5);
}

TEST_F(StageOnGpu, PartsOfTheVocabularyFollowTheHost) {
  using enum model::TensorId;
  using schedule::Phase;
  const Input in(StageKind::head, llama(10), at::kFloat, Mode::train);
  const model::Model model{.sizes = in.sizes, .held = in.sizes, .part = {.rank = 1, .ranks = 3}};
  const model::Stage head{.name = {},
                          .kind = StageKind::logits,
                          .parameters = {},
                          .enter = {},
                          .leave = model::Exchange::gather_vocabulary};
  const model::Stage embedding{.name = {},
                               .kind = StageKind::embedding,
                               .parameters = {},
                               .enter = {},
                               .leave = model::Exchange::all_reduce_activation};
  const at::Tensor projection = in.parameters.back().slice(0, 34, 68).contiguous();
  const at::Tensor softmax = at::full({42, 2}, 3.0);
  const schedule::TensorSet all =
      schedule::TensorSet(Phase::forward, {residual, normed, vocabulary, logits, branch_output}) |
      schedule::TensorSet(Phase::backward, {residual, normed});
  const auto use = [&](bool on_gpu) {
    const at::Device device = on_gpu ? at::kCUDA : at::kCPU;
    const auto place = [&](const at::Tensor& t) { return on_gpu ? to_kernels(t) : t.clone(); };
    Microbatch m = in.microbatch;
    m.inputs = place(m.inputs);
    m.targets = place(m.targets);
    const Tensors parameters{place(projection)};
    const std::vector<Grad> grads{{.tensor = place(at::full_like(projection, 1.0)), .accumulate = true}};
    ShardedCall of_head(model, head, device), of_embedding(model, embedding, device);
    of_head[{normed, Phase::forward}] = place(in.x);
    of_head.run(&StageCode::forward, parameters, {}, m, Mode::train, Phase::forward, all);
    Tensors out{of_head[{vocabulary, Phase::forward}]};
    of_head[{vocabulary, Phase::forward}] = place(softmax);
    of_head.run(&StageCode::backward, parameters, grads, m, Mode::train, Phase::backward, all);
    out.push_back(of_head[{normed, Phase::backward}]);
    of_embedding.run(&StageCode::forward, parameters, {}, m, Mode::train, Phase::forward, all);
    out.push_back(of_embedding[{branch_output, Phase::forward}]);
    of_embedding[{residual, Phase::backward}] = place(in.d_y);
    of_embedding.run(&StageCode::backward, parameters, grads, m, Mode::train, Phase::backward, all);
    out.push_back(grads[0].tensor);
    for (at::Tensor& t : out) t = t.cpu();
    return out;
  };
  const Tensors gpu = use(true), host = use(false);
  for (std::size_t i = 0; i < host.size(); ++i) EXPECT_LT(relative_error(gpu[i], host[i]), 1e-5) << i;
}

}  // namespace
}  // namespace trireme::nn
