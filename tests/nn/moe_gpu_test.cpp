// SPDX-License-Identifier: Apache-2.0
// Layers of experts on a GPU against the same layers on the host.
#include <gtest/gtest.h>

#include "nn/reference.hpp"
#include "support/gpu.hpp"

namespace trireme::nn::moe_gpu_test {
namespace {

using model::StageKind;
using test::relative_error;
using test::to_kernels;
using Tensors = std::vector<at::Tensor>;

/// Qwen3-MoE, DeepSeek-V3 and Qwen2-MoE in small; the last one's experts follow each other in whole pieces of 16 bytes:
/// in bf16 their products go in groups.
std::vector<model::Sizes> models() {
  model::Sizes qwen = test::expert_sizes(), deepseek = test::expert_sizes(), even = test::even_sizes();
  model::Experts& d = *deepseek.decoder.experts;
  d.count = 6;
  d.scores = model::RouterScores::sigmoid;
  d.choice_bias = true;
  d.groups = 3;
  d.groups_kept = 2;
  d.scale = 1.7;
  d.shared = model::SharedExperts::plain;
  d.shared_size = 20;
  even.decoder.experts = model::Experts{.count = 12,
                                        .per_token = 2,
                                        .size = 16,
                                        .normalized = false,
                                        .shared = model::SharedExperts::gated,
                                        .shared_size = 24};
  return {qwen, deepseek, even};
}

struct Output {
  at::Tensor y, d_x, gradients;
  std::vector<std::int64_t> expert_tokens;
  double balance_loss, router_z_loss;
};

struct Input {
  model::Sizes sizes;
  at::ScalarType type;
  Mode mode;
  bool counted;  ///< forward's rows per expert are passed to backward
  test::Flat f = test::flat(StageKind::moe, sizes, type, true);
  Microbatch m = test::microbatch(2, 21, sizes.vocab);
  at::Tensor x = at::randn({42, sizes.hidden}).to(type), d_y = at::randn({42, sizes.hidden}).to(type), choice{};

  /// In bf16, rounding of the router's input would change the choice: both use the host's choice.
  void choose() {
    m.balance_scale = 0.1;
    m.router_z_scale = 0.003;
    if (sizes.decoder.experts->choice_bias) m.choice_bias = 0.3 * at::randn({sizes.decoder.experts->count});
    if (type == at::kFloat) return;
    Saved saved;
    (void)make_stage(StageKind::moe, sizes, 21, DType::bf16, 0)->forward(x, f.parameters, m, Mode::decide, saved);
    choice = saved.tensors.front();
  }
};

Output run(const Input& in, bool gpu) {
  const auto place = [&](const at::Tensor& t) { return gpu && t.defined() ? to_kernels(t) : t; };
  const at::Tensor values = place(in.f.buffer),
                   gradients = gpu ? to_kernels(in.f.grad_buffer) : in.f.grad_buffer.clone();
  const auto view = [](const at::Tensor& all, const at::Tensor& like) {
    return all.narrow(0, like.storage_offset(), like.numel()).view(like.sizes());
  };
  Tensors parameters;
  std::vector<Grad> grads;
  for (std::size_t i = 0; i < in.f.parameters.size(); ++i) {
    parameters.push_back(view(values, in.f.parameters[i]));
    grads.push_back({.tensor = view(gradients, in.f.grads[i].tensor), .accumulate = true});
  }
  Microbatch m = in.m;
  m.inputs = place(m.inputs);
  m.targets = place(m.targets);
  m.choice_bias = place(m.choice_bias);
  Saved saved;
  if (in.choice.defined()) saved.tensors = {place(in.choice)};
  const auto stage = make_stage(StageKind::moe, in.sizes, 21, in.type == at::kFloat ? DType::fp32 : DType::bf16, 0,
                                gpu ? at::kCUDA : at::kCPU);
  const Result forward = stage->forward(place(in.x), parameters, m, in.mode, saved);
  const std::vector<std::int64_t> tokens = forward.expert_tokens;
  if (in.counted) m.expert_tokens = tokens;
  if (in.mode == Mode::decide) (void)stage->forward(place(in.x), parameters, m, Mode::rebuild, saved);
  const Result backward = stage->backward(place(in.d_y), parameters, grads, m, std::move(saved));
  Output out{.y = forward.hidden.cpu(),
             .d_x = backward.hidden.cpu(),
             .gradients = gradients.cpu(),
             .expert_tokens = tokens,
             .balance_loss = backward.balance_loss,
             .router_z_loss = backward.router_z_loss};
  EXPECT_EQ(backward.device_router_losses.defined(), gpu && m.balance_scale > 0);
  if (!backward.device_router_losses.defined()) return out;
  const at::Tensor losses = backward.device_router_losses.cpu();
  out.balance_loss = losses[0].item<double>();
  out.router_z_loss = losses[1].item<double>();
  return out;
}

class MoeOnGpu : public test::GpuTest {};

TEST_F(MoeOnGpu, FollowsTheHost) {
  for (const model::Sizes& sizes : models())
    for (const auto type : {at::kFloat, at::kBFloat16})
      for (const auto mode : {Mode::train, Mode::train_keep_all, Mode::decide})
        for (const bool counted : {false, true}) {
          Input in{.sizes = sizes, .type = type, .mode = mode, .counted = counted};
          in.choose();
          const Output gpu = run(in, true), host = run(in, false);
          const double tolerance = type == at::kFloat ? 1e-5 : 3e-2;
          EXPECT_EQ(gpu.expert_tokens, host.expert_tokens);
          EXPECT_LT(relative_error(gpu.y - in.x, host.y - in.x), tolerance);
          EXPECT_LT(relative_error(gpu.d_x - in.d_y, host.d_x - in.d_y), tolerance);
          EXPECT_LT(relative_error(gpu.gradients, host.gradients), tolerance);
          EXPECT_NEAR(gpu.balance_loss, host.balance_loss, tolerance * host.balance_loss);
          EXPECT_NEAR(gpu.router_z_loss, host.router_z_loss, tolerance * host.router_z_loss);
        }
}

TEST_F(MoeOnGpu, LeavesGradientsAloneWhereExpertsHaveNoTokens) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    Input in{.sizes = models().back(), .type = type, .mode = Mode::train, .counted = true};
    in.choice = at::full({42, 2}, 3, at::kInt);  // every token twice to one of twelve
    const Output gpu = run(in, true), host = run(in, false);
    EXPECT_EQ(gpu.expert_tokens, (std::vector<std::int64_t>{0, 0, 0, 84, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_LT(relative_error(gpu.gradients, host.gradients), type == at::kFloat ? 1e-5 : 3e-2);
    const std::size_t first = in.f.parameters.size() - 36;
    for (std::size_t e = 0; e < 12; ++e) {
      const at::Tensor& like = in.f.grads[first + 24 + e].tensor;
      const at::Tensor down = gpu.gradients.narrow(0, like.storage_offset(), like.numel());
      EXPECT_EQ((down == 1).all().item<bool>(), e != 3) << e;
    }
  }
}

}  // namespace
}  // namespace trireme::nn::moe_gpu_test
